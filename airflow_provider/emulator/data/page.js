"use strict";
// Everything is inserted as text, never as markup: names and texts are untrusted.

const REFRESH_MILLISECONDS = 1000;
const MAX_TEXT_CHARS = 50000;
const byId = (id) => document.getElementById(id);
let latest = null;
let shown = {};

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

function row(cells, className) {
  const line = element("tr", null, className);
  for (const cell of cells) {
    line.append(cell instanceof Node ? cell : element("td", cell));
  }
  return line;
}

function tight(text) { return element("td", text, "tight"); }

function badge(status) {
  const cell = element("td", null, "tight");
  cell.append(element("span", status, "badge " + (/^[A-Z]+$/.test(status) ? status : "")));
  return cell;
}

function answers(counts) {
  const cell = element("td");
  for (const [answer, count] of Object.entries(counts)) {
    const bad = answer === "reset" || Number(answer) >= 400;
    cell.append(element("span", count === null ? answer : answer + " × " + count, bad ? "answer bad" : "answer"));
  }
  return cell;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function span(seconds) {
  if (seconds < 60) return Math.round(seconds) + " s";
  return seconds < 3600 ? Math.round(seconds / 60) + " min" : Math.round(seconds / 3600) + " h";
}

function fill(id, lines, nothing) {
  const headings = byId(id).tHead.rows[0].cells;
  for (const line of lines) {
    [...line.cells].forEach((cell, column) => { cell.dataset.label = headings[column].textContent; });
  }
  if (!lines.length) {
    const cell = element("td", nothing, "empty");
    cell.colSpan = headings.length;
    lines = [row([cell])];
  }
  byId(id).tBodies[0].replaceChildren(...lines);
}

// Draws a part only when its data has changed, so that a selection of text survives.
function draw(id, data, make) {
  const key = JSON.stringify(data);
  if (shown[id] !== key) {
    shown[id] = key;
    make(data);
  }
}

function drawTiles(state) {
  const counts = state.counters;
  const tiles = [
    [state.jobs_held, "jobs"],
    [counts.total, "requests"],
    [counts.in_flight + " / " + counts.max_in_flight, "in flight / max"],
    [counts.logins + " / " + counts.refreshes, "logins / refreshes"],
    [state.faults.length + state.planned_failures.length, "planned failures"],
    [state.assessments_held, "assessments"],
  ];
  byId("tiles").replaceChildren(...tiles.map(([number, name]) => {
    const tile = element("div", null, "tile");
    tile.append(element("b", number), element("span", name));
    return tile;
  }));
}

function drawJobs(jobs) {
  const wanted = byId("filter").value.trim().toLowerCase();
  const hit = (job) => (job.name + " " + job.uuid + " " + job.status).toLowerCase().includes(wanted);
  const lines = jobs.filter(hit).map((job) => {
    const about = job.error
      ? element("td", job.error, "error")
      : element("td", job.characters ? job.characters + " characters: " + job.excerpt : "", "");
    const line = row([badge(job.status), element("td", job.name, "name"), element("td", job.uuid, "mono tight"),
      job.polls, tight(clock(job.created)), about], "job");
    line.tabIndex = 0;
    line.title = "Show the text";
    line.onclick = () => { location.hash = job.uuid; };
    line.onkeydown = (event) => { if (event.key === "Enter") line.onclick(); };
    return line;
  });
  fill("jobs", lines, wanted ? "No job matches the filter." : "No jobs yet.");
}

// The uuid is in the URL, so that a text can be linked to.
async function showText() {
  const uuid = decodeURIComponent(location.hash.slice(1));
  byId("text-panel").hidden = !uuid;
  if (!uuid) return;
  const answer = await fetch("/_emulator/jobs/" + encodeURIComponent(uuid) + "/text");
  const text = answer.ok ? await answer.text() : "The job is gone.";
  byId("text-name").textContent = uuid;
  byId("text").textContent = text.length > MAX_TEXT_CHARS ? text.slice(0, MAX_TEXT_CHARS) + "\n…" : text || "(no text)";
  byId("text-panel").scrollIntoView({ block: "nearest" });
}

function describeFault(fault) {
  const parts = [];
  if (fault.skip) parts.push("after " + fault.skip + (fault.skip === 1 ? " more call" : " more calls"));
  if (fault.delay) parts.push("waits " + fault.delay + " s");
  if (fault.done) parts.push("runs the operation");
  if (fault.status) parts.push("returns " + fault.status);
  if (fault.retry_after !== null) parts.push("Retry-After: " + fault.retry_after);
  if (fault.html) parts.push("HTML page");
  if (fault.body !== null) parts.push("another body");
  if (fault.location) parts.push("Location: " + fault.location);
  if (fault.stall) parts.push("pauses " + fault.stall + " s in the body");
  if (fault.drip) parts.push("sends one byte every " + fault.drip + " s");
  if (fault.reset) parts.push("resets the connection (" + fault.reset + ")");
  return parts.join(", ");
}

function planned(item, name, effect) {
  const left = item.remaining === null ? "until cleared" : item.remaining;
  return row([element("td", name, "mono"), effect, left, item.hits]);
}

function drawAll(state) {
  latest = state;
  byId("url").textContent = state.url;
  byId("mode").textContent = "jobs: " + state.settings.jobs + (state.settings.quirks ? ", with quirks" : "");
  const hidden = state.jobs_held - state.jobs.length;
  byId("jobs-note").textContent = (hidden > 0 ? "the latest " + state.jobs.length + " of " + state.jobs_held : "") +
    (state.jobs_evicted ? " · " + state.jobs_evicted + " evicted" : "");
  draw("tiles", [state.counters, state.jobs_held, state.faults, state.planned_failures, state.assessments_held],
    () => drawTiles(state));
  draw("jobs", state.jobs, drawJobs);
  draw("faults", state.faults, (faults) => fill("faults",
    faults.map((fault) => planned(fault, fault.operation, describeFault(fault))), "None."));
  draw("failures", state.planned_failures, (failures) => fill("failures",
    failures.map((failure) => planned(failure, failure.match, element("td", failure.error, "error"))), "None."));
  byId("tokens-note").textContent = state.tokens.issued + " in total";
  draw("tokens", [state.tokens.latest.slice(0, 8), Math.round(state.now / 10)], ([tokens]) => fill("tokens",
    tokens.map((token) => row([tight(clock(token.time)), token.user, token.grant,
      token.expires > state.now ? "in " + span(token.expires - state.now) : "expired"])), "None yet."));
  draw("calls", state.counters.operations, (calls) => fill("calls",
    Object.entries(calls).map(([name, counts]) => row([tight(name), answers(counts)])), "None yet."));
  draw("assessments", state.assessments, (all) => fill("assessments", all.map((each) => row([badge(each.status),
    element("td", each.uuid, "mono"), each.error ? element("td", each.error, "error") : summary(each)])), "None yet."));
  draw("feedback", state.feedback, (all) => fill("feedback", all.map((each) => row(
    [each.expertId, each.categoryFeedback || "", each.rationalFeedback])), "None yet."));
  draw("requests", state.requests.slice(0, 40), (all) => fill("requests", all.map((each) => row(
    [tight(clock(each.time)), answers({ [each.answer]: null }), element("td", each.method + " " + each.path, "mono"),
      tight(each.operation), each.authorized ? "yes" : "no"])), "None yet."));
}

function summary(assessment) {
  const counts = {};
  for (const result of assessment.results) counts[result.category] = (counts[result.category] || 0) + 1;
  return Object.entries(counts).map(([name, count]) => count + " " + name).join(", ");
}

async function refresh() {
  try {
    const answer = await fetch("/_emulator/overview?limit=200");
    drawAll(await answer.json());
    byId("live").textContent = "live";
    byId("live").className = "";
  } catch {
    byId("live").textContent = "no response";
    byId("live").className = "lost";
  }
}

async function keepFresh() {
  if (!document.hidden) await refresh();
  setTimeout(keepFresh, REFRESH_MILLISECONDS);
}

for (const button of document.querySelectorAll("nav button")) {
  button.onclick = async () => {
    const { post, delete: removed, confirm: question } = button.dataset;
    if (question && !window.confirm(question)) return;
    const options = post ? { method: "POST", headers: { "Content-Type": "application/json" } } : { method: "DELETE" };
    for (const path of (post || removed).split(" ")) await fetch("/_emulator/" + path, options);
    await refresh();
  };
}
byId("filter").oninput = () => latest && drawJobs(latest.jobs);
byId("text-close").onclick = () => { location.hash = ""; };
window.onhashchange = showText;
showText();
keepFresh();
