// The matrix of a verdict report: filters, pages and rationales, from the data on the page itself.
"use strict";
(() => {
  const PAGE = 100;
  const data = JSON.parse(document.getElementById("verdicts").textContent);
  // By letter: words, CSS class and sign.
  const KINDS = { ...data.categories, F: ["not assessed", "none", "!"], ".": ["no verdict", "none", ""] };
  const section = document.querySelector(".matrix");
  const form = section.querySelector("form");
  const table = section.querySelector("table");
  const pages = section.querySelector(".pages");
  const dialog = section.querySelector("dialog");
  const { framework, only, text } = form.elements;
  let page = 0;
  let shown = [];

  const make = (name, style, content) => {
    const element = document.createElement(name);
    if (style) element.className = style;
    if (content !== undefined) element.textContent = content;
    return element;
  };
  const count = (row, letter) => row.toUpperCase().split(letter).length - 1;
  const tests = {
    all: () => true,
    open: (row) => [...data.bad].some((letter) => count(row, letter)),
    worst: (row) => count(row, data.bad.at(-1)),
    changed: (row) => /[a-z]/.test(row),
    failed: (row) => row === "F",
  };
  // The worst first: one worse verdict counts more than many less bad ones.
  const weight = (row) => [...data.bad].reduce((sum, letter, place) => sum + count(row, letter) * 1000 ** place, 0);

  function select() {
    const rows = data.frameworks[framework.value].rows;
    const wanted = text.value.trim().toLowerCase();
    shown = [];
    rows.forEach((row, number) => {
      const name = data.documents[number].join("").toLowerCase();
      if (row && tests[only.value](row) && (!wanted || name.includes(wanted))) shown.push(number);
    });
    shown.sort((a, b) => weight(rows[b]) - weight(rows[a]) || a - b);
    page = 0;
    draw();
  }

  function draw() {
    const { criteria, rows } = data.frameworks[framework.value];
    const head = make("tr");
    head.append(make("th", "", "Document"));
    criteria.forEach(([name, title]) => {
      const cell = make("th", "criterion");
      cell.title = title;
      cell.append(make("span", "", name));
      head.append(cell);
    });
    table.tHead.replaceChildren(head);
    const first = page * PAGE;
    table.tBodies[0].replaceChildren(...shown.slice(first, first + PAGE).map((number) => {
      const line = make("tr");
      const [folder, name] = data.documents[number];
      const label = make("th", "document");
      label.title = folder + name;
      label.append(make("span", "", name || folder));
      line.append(label);
      const failed = rows[number] === "F";
      const row = failed ? "F".repeat(criteria.length || 1) : rows[number].padEnd(criteria.length, ".");
      [...row].forEach((letter, column) => {
        const kind = letter.toUpperCase();
        const [words, style, sign] = KINDS[kind];
        const cell = make("td", style);
        const button = make("button", letter === kind ? "" : "changed", sign);
        button.type = "button";
        button.title = `${criteria[column]?.[0] ?? ""}: ${words}${letter === kind ? "" : ", changed"}`;
        button.addEventListener("click", () => explain(number, column, kind));
        cell.append(button);
        line.append(cell);
      });
      return line;
    }));
    const last = Math.min(first + PAGE, shown.length);
    form.querySelector("output").textContent = shown.length
      ? `${shown.length.toLocaleString("en")} document${shown.length === 1 ? "" : "s"}` : "No document";
    const more = data.left_out ? `; ${data.left_out.toLocaleString("en")} more are in the findings only` : "";
    pages.querySelector("span").textContent = shown.length
      ? `${first + 1} to ${last} of ${shown.length.toLocaleString("en")}${more}` : more;
    pages.hidden = shown.length <= PAGE && !more;
    pages.querySelector("[name=previous]").disabled = page === 0;
    pages.querySelector("[name=next]").disabled = last >= shown.length;
  }

  function explain(number, column, kind) {
    const chosen = data.frameworks[framework.value];
    const [code, title] = chosen.criteria[column] ?? ["", ""];
    const [heading, where, verdict, why] = dialog.querySelectorAll("h2, p");
    heading.textContent = `${code}: ${KINDS[kind][0]}`;
    where.textContent = data.documents[number].join("");
    verdict.textContent = title;
    why.textContent = data.notes[`${number}/${framework.value}/${column}`]
      ?? (kind === "F" ? "See “Why assessments failed” below." : "The rationale is in the findings.");
    dialog.showModal();
  }

  data.frameworks.forEach(({ name }, number) => {
    const option = make("option", "", name);
    option.value = number;
    framework.append(option);
  });
  form.addEventListener("input", select);
  form.addEventListener("submit", (event) => event.preventDefault());
  pages.addEventListener("click", ({ target }) => {
    if (target.name === "previous") page -= 1;
    else if (target.name === "next") page += 1;
    else return;
    draw();
    table.scrollIntoView({ block: "nearest" });
  });
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", ({ target }) => { if (target === dialog) dialog.close(); });
  form.hidden = table.hidden = section.querySelector(".signs").hidden = false;
  select();
})();
