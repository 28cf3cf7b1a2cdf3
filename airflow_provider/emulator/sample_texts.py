"""The words of the sample documents: invented parties, clauses and figures on compliance topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

PROVIDERS = ("Alder Cloud", "Brightwater Hosting", "Cormorant Data", "Dunlin Payments", "Elmfield Software")
CUSTOMERS = ("Harbour Bank", "Meadow Insurance", "Northgate Leasing", "Old Mill Savings", "Quayside Pensions")
SERVICES = ("payment processing", "document archiving", "customer support", "data hosting", "card issuing")

# A topic, and below it its sentences; braces are filled anew in every document.
_CLAUSES = """\
Scope of the services
{provider} runs {service} for {customer} from two sites, which lie at least {kilometres} km apart.
Services that this document does not name are not part of it, even where both sides have grown used to them.
{customer} has rated {service} as critical and looks at that rating again every {months} months.
A change of scope is valid once both sides have signed it; an e-mail is not enough.

Audit rights
{customer}, its auditors and its supervisor may enter every place where {service} is run.
A visit is announced {days} days ahead, unless there is reason to believe that evidence may be lost.
{provider} answers written questions within {days} days and names the person who answers.
A certificate may spare an audit, but only for the controls that it covers and for as long as it is valid.
Findings are rated, given an owner and a date, and followed up every {months} months until they are closed.

Exit
When the contract ends, {provider} goes on with {service} for up to {months} months at the same price.
All data goes back in an open format; {provider} deletes its copies within {days} days and confirms it.
The exit plan is rehearsed every {months} months, and the rehearsal has to end within {hours} hours.
{customer} may leave without a penalty if the supervisor asks for it or if control of {provider} changes.

Incident reporting
{provider} reports a serious incident within {hours} hours of noticing it, even if the cause is not known.
The first report says what is affected, since when, how many customers feel it, and who can be called.
A report on the cause follows within {days} days, with what will be done so that it does not happen again.
Near misses are collected and shown to {customer} every {months} months.

Subcontractors
{provider} tells {customer} {days} days before it hands a part of {service} to somebody else.
{customer} may object; without its consent the part stays where it is.
Every duty in this document binds subcontractors too, the right of audit above all.
The register of subcontractors names the country in which each of them keeps data.

Information security
Data is encrypted on its way and at rest; keys are changed every {months} months.
Access is given for a task and ends with it; a list of all rights is reviewed every {days} days.
{provider} tests {service} against intrusion once in {months} months and shows {customer} the summary.
Known weaknesses that are rated high are mended within {days} days, critical ones within {hours} hours.

Continuity
{service} is back within {hours} hours of a disaster, with no more than {minutes} minutes of data lost.
Backups are kept apart from what they back up, and one of them is restored as a test every {days} days.
{customer} takes part in a joint exercise every {months} months.

Service levels
{service} is available for {percent} per cent of each month, counted without announced maintenance.
Below that, {provider} credits {percent_small} per cent of the monthly fee for every hour that is missing.
Figures are measured at the point where {customer} takes the service over, and reported by the fifth day.

Records and retention
Both sides keep the records of {service} for {years} years after the end of the contract.
A record that is needed in a dispute is kept until the dispute is over, whatever its age.
{provider} finds and hands over a record within {hours} hours of being asked.
"""
# A kind of document, and below it how such a document begins.
_KINDS = """\
Outsourcing agreement
This agreement between {customer} and {provider} governs the outsourcing of {service}.

Audit report
This report sums up what the auditors of {customer} saw of {service} at {provider}.

Exit plan
This plan says how {customer} would take {service} back from {provider} or give it to another.

Incident procedure
This procedure says who at {provider} tells whom at {customer} when {service} fails.

Policy on third parties
This policy tells the staff of {customer} how to choose and watch the likes of {provider}.
"""


def _read(text: str) -> dict[str, tuple[str, ...]]:
    blocks = (block.splitlines() for block in text.strip().split("\n\n"))
    return {name: tuple(sentences) for name, *sentences in blocks}


CLAUSES = _read(_CLAUSES)
KINDS = _read(_KINDS)


@dataclass(frozen=True)
class Words:
    """The title of a document, and its paragraphs; some of them are headings."""

    kind: str
    title: str
    paragraphs: tuple[str, ...]
    headings: frozenset[str]


def make_words(random: Random, clauses: int) -> Words:
    """Return a document with so many clauses; the same state of `random` gives the same words."""
    names = {
        "provider": random.choice(PROVIDERS),
        "customer": random.choice(CUSTOMERS),
        "service": random.choice(SERVICES),
    }
    kind = random.choice(list(KINDS))
    title = f"{kind}: {names['provider']} for {names['customer']}"
    paragraphs, headings = [title, KINDS[kind][0].format(**names)], [title]
    topics: list[str] = []
    while len(topics) < clauses:
        topics += random.sample(list(CLAUSES), len(CLAUSES))
    for number, topic in enumerate(topics[:clauses], 1):
        headings.append(f"{number}. {topic}")
        sentences = random.sample(CLAUSES[topic], random.randint(2, len(CLAUSES[topic])))
        filled = (_capital(sentence.format(**names, **_figures(random))) for sentence in sentences)
        paragraphs += [headings[-1], " ".join(filled)]
    return Words(kind, title, tuple(paragraphs), frozenset(headings))


def _figures(random: Random) -> dict[str, object]:
    return {
        "kilometres": random.randrange(20, 400, 10),
        "months": random.choice((3, 6, 12, 18, 24)),
        "days": random.choice((5, 10, 14, 20, 30, 60, 90)),
        "hours": random.choice((2, 4, 8, 24, 48, 72)),
        "minutes": random.choice((5, 15, 30, 60)),
        "percent": random.choice(("99.5", "99.8", "99.9", "99.95")),
        "percent_small": random.choice((2, 3, 5)),
        "years": random.choice((5, 7, 10)),
    }


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
