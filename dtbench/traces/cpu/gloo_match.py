"""Which ``gloo:*`` span belongs to which issue, and which of gloo's threads belong together.

::

    model thread   | a  b  c                          issues, in order
    thread 1       |   ██████a   ███c                 a group has two threads, and each takes the next one of its queue
    thread 2       |      ████████b

Matched first in, first out: each issue takes the earliest free span of its operation and size that starts after it, but
none that began after it was over (``gloo_bounds.py``): that is another's, and its own is lost. Where a span is lost the
last issue may as well take the last span, the one before it the one before, and so on. What both ways give is so
whichever is lost; of all others it is not told whose span is whose, nor which issue has none::

    issues     a  b  c  d  |           |  a sure: nothing else had been issued when it began
    spans       ██     ██ ██           |  b, c, d: two of them ran, not told which
    backward   ├───────────┤

Threads serve one group for as long as they live. Where issues are labelled, threads are learnt to belong to a group by
majority before anything is matched for good; elsewhere two threads that ran the same operations and sizes are taken for
one group (a group has two, torch's ``ProcessGroupGloo::Options::threads``).
"""

import bisect
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from dtbench.base.ranges import ReadLabel
from dtbench.base.vocabulary import POINT_TO_POINT, Operation
from dtbench.traces.who.collectives import INFERRED_PREFIX

# gloo runs a reduce-scatter as an all-reduce; all others under their own name.
_RUNS_AS: Final = {Operation.REDUCE_SCATTER: (Operation.REDUCE_SCATTER, Operation.ALL_REDUCE)}
# Their spans name one rank's part of the payload.
_IN_PARTS: Final = (Operation.ALL_GATHER, Operation.GATHER, Operation.SCATTER, Operation.ALL_TO_ALL)
_ALONE: Final = 8
"""A thread is a group of its own when it ran so many collectives in a row and no other thread ran their like: had the
group another thread, each would have gone to either, so that this has one chance in 128. Two threads that take turns
are no two groups: one group's two collectives may alternate as well."""


@dataclass(frozen=True)
class Issue:
    """A collective as it was issued.

    Attributes:
        operation: None: its label says it in a word of another version, and nothing else does.
        elements: of each tensor argument; empty where the label says the bytes.
        parts: elements of each of the spans that carry it out, None where the trace does not say; empty: one span does.
        may_have_more: spans beyond ``parts``, because nobody knows how many ranks its group has.
        until_ns: before which it began, as somebody who waited for it then went on; None: not known.
    """

    event: int
    start_ns: int
    operation: Operation | None
    label: ReadLabel | None
    elements: tuple[int, ...]
    parts: tuple[int | None, ...] = ()
    may_have_more: bool = False
    until_ns: int | None = None

    def may_begin(self, time_ns: int) -> bool:
        """Tell whether its span may begin at a moment after its issue."""
        return self.until_ns is None or time_ns < self.until_ns


@dataclass(frozen=True)
class Form:
    """What spans have in common that may be told from nothing but them.

    Attributes:
        elements, size_bytes: of all its tensors; None where the trace does not say.
    """

    operation: Operation | None
    elements: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class Span:
    """A collective as it ran on one of gloo's threads, or on the emulated link.

    Attributes:
        start_ns: of its event.
        begun_ns: how much earlier it began; only the link says so.
        on_link: it ran on the emulated link.
        further: events of the spans that carried out the rest of it.
    """

    event: int
    start_ns: int
    lane: int
    form: Form
    dtype: str | None
    begun_ns: int = 0
    on_link: bool = False
    further: tuple[int, ...] = ()

    @property
    def events(self) -> list[int]:
        """Everything that carried it out."""
        return [self.event, *self.further]


@dataclass(frozen=True)
class Matching:
    """Whose span is whose.

    Attributes:
        spans: of each issue of which that is told, by the issue's event.
        untold: of each other span that is of one of several issues, of which others have none, by its event: the events
            of these issues.
    """

    spans: Mapping[int, Span]
    untold: Mapping[int, tuple[int, ...]]


def match_spans(issues: Sequence[Issue], spans: Sequence[Span]) -> Matching:
    """Return the span of each issue; both in order of start.

    Where several spans carried it out, they are one: gloo runs a reduce-scatter from lists as an all-reduce for each
    rank, and a coalesced one as an all-reduce for each tensor.
    """
    group_of = _learn_threads(issues, spans)

    def may_take(issue: Issue, lane: int) -> bool:
        return (
            issue.label is None
            or issue.operation in POINT_TO_POINT
            or group_of.get(lane, issue.label.group) == issue.label.group
        )

    first = _first_in_first_out(issues, spans, may_take)
    if len(first) == len(issues):
        return Matching(_take_the_rest(issues, spans, first), {})
    last = _last_in_last_out(issues, spans, may_take)
    sure = {event: span for event, span in first.items() if event in last and last[event].events == span.events}
    return Matching(_take_the_rest(issues, spans, sure), _find_untold(issues, sure, (first, last)))


def _find_untold(
    issues: Sequence[Issue], sure: Mapping[int, Span], ways: tuple[Mapping[int, Span], Mapping[int, Span]]
) -> dict[int, tuple[int, ...]]:
    """Return of which issues each span may be that is one's either way, but not the same one's."""
    events = [issue.event for issue in issues if issue.event not in sure]
    place = {event: index for index, event in enumerate(events)}
    early, late = ({part: place[one] for one in events if one in way for part in way[one].events} for way in ways)
    return {span: tuple(events[early[span] : late[span] + 1]) for span in early if span in late}


def _take_the_rest(issues: Sequence[Issue], spans: Sequence[Span], matches: Mapping[int, Span]) -> dict[int, Span]:
    """Return what no issue took to the last before it that may have had more of the same form."""
    open_issues = [issue for issue in issues if issue.may_have_more and issue.event in matches]
    found = dict(matches)
    taken = {event for span in matches.values() for event in span.events} if open_issues else set()
    for span in spans if open_issues else ():
        before = bisect.bisect_right(open_issues, span.start_ns, key=lambda issue: issue.start_ns)
        fitting = (
            issue
            for issue in reversed(open_issues[:before])
            if found[issue.event].form == span.form and issue.may_begin(span.start_ns)
        )
        issue = None if span.event in taken else next(fitting, None)
        if issue is not None:
            found[issue.event] = _join([found[issue.event], span])
    return found


def _join(parts: Sequence[Span]) -> Span:
    """Make one span of all that carried out one collective."""
    first, *rest = parts
    return replace(first, further=(*first.further, *(event for span in rest for event in span.events)))


def _learn_threads(issues: Sequence[Issue], spans: Sequence[Span]) -> dict[int, str]:
    """Return the group that each of gloo's threads works for.

    Learnt from collectives whose operation and size only one group has; a thread that ran none of these is left out.
    Sends and receives tell nothing: they lie on the thread that asked for them, whatever their group.
    """
    groups: dict[tuple[Operation | None, int | None], set[str]] = {}
    labelled = [
        (issue, issue.label) for issue in issues if issue.label is not None and issue.operation not in POINT_TO_POINT
    ]
    for issue, label in labelled:
        groups.setdefault((issue.operation, label.size_bytes), set()).add(label.group)
    telling = [
        issue
        for issue, label in labelled
        if None not in (key := (issue.operation, label.size_bytes)) and len(groups[key]) == 1
    ]
    matches = _first_in_first_out(telling, spans, lambda _issue, _lane: True)
    votes = Counter(
        (matches[issue.event].lane, issue.label.group) for issue in telling if issue.label and issue.event in matches
    )
    group_of: dict[int, str] = {}
    for (lane, group), _ in votes.most_common():
        group_of.setdefault(lane, group)
    return group_of


def _first_in_first_out(
    issues: Sequence[Issue], spans: Sequence[Span], may_take: Callable[[Issue, int], bool]
) -> dict[int, Span]:
    """Let each issue take the earliest free span that fits.

    Spans that no issue can tell apart wait in one queue. One that started before an issue started before all later ones
    too, so it leaves its queue for good: linear in issues and spans for a given number of queues.
    """
    queues = _Queues(spans, may_take)
    matches: dict[int, Span] = {}
    for issue in issues:
        fitting = queues.of(issue)
        for queue in fitting:
            while queue and queue[0].start_ns < issue.start_ns:
                queue.popleft()
        parts = [
            first.popleft()
            for elements in issue.parts or (None,)
            if (first := _find_first(fitting, elements)) is not None and issue.may_begin(first[0].start_ns)
        ]
        if parts:
            matches[issue.event] = _join(parts)
    return matches


def _last_in_last_out(
    issues: Sequence[Issue], spans: Sequence[Span], may_take: Callable[[Issue, int], bool]
) -> dict[int, Span]:
    """Let each issue, the last one first, take the latest free span that fits."""
    queues = _Queues(spans, may_take)
    matches: dict[int, Span] = {}
    for issue in reversed(issues):
        fitting = queues.of(issue)
        parts = [
            span
            for elements in reversed(issue.parts or (None,))
            if (span := _take_last(fitting, issue, elements)) is not None
        ]
        if parts:
            matches[issue.event] = _join(parts[::-1])
    return matches


class _Queues:
    """The spans that nobody took yet, in order of start; those that no issue can tell apart wait in one queue."""

    def __init__(self, spans: Sequence[Span], may_take: Callable[[Issue, int], bool]) -> None:
        self._may_take = may_take
        self._queues: dict[tuple[int, Form], deque[Span]] = {}
        for span in spans:
            self._queues.setdefault((span.lane, span.form), deque()).append(span)
        self._fitting: dict[object, list[deque[Span]]] = {}

    def of(self, issue: Issue) -> list[deque[Span]]:
        """Return the queues of which an issue may take a span, apart from time."""
        kind = _kind(issue)
        if kind not in self._fitting:
            self._fitting[kind] = [
                queue
                for (lane, form), queue in self._queues.items()
                if _fits(issue, form) and self._may_take(issue, lane)
            ]
        return self._fitting[kind]


def _take_last(queues: Sequence[deque[Span]], issue: Issue, elements: int | None) -> Span | None:
    """Take the latest span that may be an issue's out of its queue; None: there is none."""
    found: list[tuple[Span, deque[Span], int]] = []
    for queue in queues:
        if not queue or (None not in (elements, own := queue[0].form.elements) and own != elements):
            continue
        place = next((place for place in range(len(queue) - 1, -1, -1) if issue.may_begin(queue[place].start_ns)), None)
        if place is not None and queue[place].start_ns >= issue.start_ns:
            found.append((queue[place], queue, place))
    if not found:
        return None
    span, queue, place = max(found, key=lambda item: (item[0].start_ns, item[0].event))
    del queue[place]
    return span


def _find_first(queues: Sequence[deque[Span]], elements: int | None) -> deque[Span] | None:
    """Return the queue whose first span is the earliest; None: none of so many elements is left."""
    ready = [
        queue for queue in queues if queue and (None in (elements, own := queue[0].form.elements) or own == elements)
    ]
    return min(ready, key=lambda queue: (queue[0].start_ns, queue[0].event), default=None)


def _kind(issue: Issue) -> object:
    """Return what decides which spans an issue may take, apart from time."""
    return issue.operation, issue.elements, issue.parts, issue.label and (issue.label.group, issue.label.size_bytes)


def _fits(issue: Issue, form: Form) -> bool:
    size_bytes = issue.label.size_bytes if issue.label else None
    if issue.operation is None:
        return size_bytes is not None and size_bytes == form.size_bytes
    if form.operation not in _RUNS_AS.get(issue.operation, (issue.operation,)):
        return False
    if issue.parts:
        return None in (form.elements, *issue.parts) or form.elements in issue.parts
    if issue.label is None:
        return form.elements is None or not issue.elements or _has_elements(issue, form.elements)
    if not form.size_bytes or size_bytes is None:
        return True
    is_part = issue.operation in _IN_PARTS and size_bytes % form.size_bytes == 0
    return is_part or size_bytes == form.size_bytes


def _has_elements(issue: Issue, elements: int) -> bool:
    """Tell whether an argument is as large as a span says; who scatters gives a part for each rank, and has one."""
    if issue.operation is Operation.SCATTER:
        return any(elements % part == 0 for part in issue.elements if part)
    return elements in issue.elements


def infer_groups(spans: Sequence[Span]) -> Mapping[int, str]:
    """Guess in a trace without labels which of gloo's threads serve one process group.

    Two threads are likened by the collectives of equal form that both ran. They are one group when either is the
    other's likest, at least twice as like as any third thread. A thread alone is one when it ran enough in a row and no
    other thread anything of their forms. All others stay unknown: several groups had the same traffic, or there was too
    little to see. Sends and receives do not count: they lie on the thread that asked for them.

    Args:
        spans: in order of start.

    Returns:
        A name for the group of each thread, ``inferred 0`` for the first to run anything; unknown threads are left out.
    """
    ran: dict[int, Counter[Form]] = {}
    for span in spans:
        if span.form.operation in POINT_TO_POINT:
            continue
        ran.setdefault(span.lane, Counter())[span.form] += 1
    lonely = {lane for lane in ran if _find_likest(lane, ran) is None}
    repeats = Counter(
        lane for lane, after in pairwise(one.lane for one in spans if one.lane in lonely) if lane == after
    )
    names: dict[int, str] = {}
    for lane in ran:
        partner = _find_partner(lane, ran, repeats[lane])
        if lane not in names and partner is not None:
            names[lane] = names[partner] = f"{INFERRED_PREFIX}{len(set(names.values()))}"
    return names


def _find_partner(lane: int, ran: Mapping[int, Counter[Form]], repeats: int) -> int | None:
    """Return the other thread of a thread's group, itself where it is alone; None: not to be seen.

    Args:
        lane: the thread.
        ran: by thread, what it ran.
        repeats: how often it was the next to run anything, of all threads that are like no other.
    """
    likest = _find_likest(lane, ran)
    if likest is not None:
        return likest if _find_likest(likest, ran) == lane else None
    others = set().union(*(forms for other, forms in ran.items() if other != lane))
    is_alone = not others & set(ran[lane]) and repeats >= _ALONE - 1
    return lane if is_alone else None


def _find_likest(lane: int, ran: Mapping[int, Counter[Form]]) -> int | None:
    likeness = Counter({other: (ran[lane] & forms).total() for other, forms in ran.items() if other != lane})
    (first, most), (_, second) = [*likeness.most_common(2), (lane, 0), (lane, 0)][:2]
    return first if most >= max(1, 2 * second) else None
