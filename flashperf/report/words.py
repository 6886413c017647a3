"""An explanation in a few sentences; never more than the intervals carry."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flashperf.records import Advice, Attribution, Explanation, Interaction, Interval, Share
from flashperf.report.numbers import (
    HELPS,
    SLOWS,
    UNCLEAR,
    bounded,
    by_share,
    clean,
    decimals_for,
    effect,
    fixed,
    span,
    times,
)

_TELLING = 2.0  # ratio; a run that could only have found larger interactions has looked for none
SAME_PROGRAM = (
    "Standard and Flash are the same program here: no switch changes anything that runs, "
    "so nothing was measured."
)


def words(explanation: Explanation) -> list[str]:
    """How much slower or faster, the largest causes, the largest interaction, what to switch back first."""
    attribution = explanation.attribution
    partial = [_partial(attribution)] if explanation.partial else []
    if not _any_active(attribution):
        return [*partial, SAME_PROGRAM]
    return [*partial, _verdict(attribution.total), *reasons(explanation)]


def reasons(explanation: Explanation) -> list[str]:
    """The sentences after the verdict: causes, interaction, advice."""
    attribution = explanation.attribution
    sentences = [_causes(attribution), _interaction(attribution)]
    if explanation.advice is not None:
        sentences.append(_advice(explanation.advice))
    return [sentence for sentence in sentences if sentence]


def headline(explanation: Explanation) -> str:
    """The verdict in one short line, without its interval."""
    total = explanation.attribution.total
    if not _any_active(explanation.attribution):
        return "Standard and Flash are the same program"
    verdict = effect(total)
    if verdict == SLOWS:
        return f"Flash takes {fixed(total.value)} times as long as Standard"
    if verdict == HELPS:
        return f"Flash is {fixed(1 / total.value)} times as fast as Standard"
    return "Can't tell whether Flash is slower or faster than Standard"


def _any_active(attribution: Attribution) -> bool:
    return any(share.active for share in attribution.shares)


def decimals(attribution: Attribution) -> int:
    """Decimals for all ratios of an attribution, so that its columns line up."""
    return decimals_for([attribution.total, *(s.share for s in attribution.shares if s.active)])


def _partial(attribution: Attribution) -> str:
    """What a run that ended early rests on."""
    return f"Partial result ({clean(attribution.stopped)}): {worked(attribution)}."


def worked(attribution: Attribution) -> str:
    """``936 runs by 9 processes``."""
    workers = "1 process" if attribution.workers == 1 else f"{attribution.workers} processes"
    return f"{attribution.runs} runs by {workers}"


def _verdict(total: Interval) -> str:
    places = decimals_for([total])
    value, level = fixed(total.value, places), f"{total.confidence * 100:.3g} %"
    if math.isnan(total.value):
        return "Nothing was measured."
    if not bounded(total):
        return f"Can't tell yet whether Flash is slower or faster: the ratio is {value}, with no interval."
    verdict, interval = effect(total), f"{level} interval {span(total, places)}"
    if verdict == SLOWS:
        return f"Flash takes {value} times as long as Standard ({interval})."
    if verdict == HELPS:
        faster = fixed(1 / total.value, places)
        return f"Flash is faster: it takes {value} of Standard's time ({interval}), {faster} times as fast."
    ratio = f"Flash / Standard is {value} ({interval})"
    return f"Can't tell whether Flash is slower or faster than Standard: {ratio}."


def _causes(attribution: Attribution) -> str:
    """The two largest switches in the direction of the verdict, then those that pull the other way."""
    active = [share for share in by_share(attribution.shares) if share.active]
    if not active:
        return SAME_PROGRAM
    slows = [share for share in active if effect(share.share) == SLOWS]
    helps = [share for share in reversed(active) if effect(share.share) == HELPS]
    verdict = effect(attribution.total)
    if len(active) == 1 and verdict != UNCLEAR:
        return f"It has one switch that acts, {_levels(active[0])}, which is all of it."
    if not slows and not helps:
        return "No switch's share can be told from 1 at this precision."
    if verdict == SLOWS:
        return _joined(_largest("cause", slows, "log slowdown"), _others("helps", "help", helps))
    if verdict == HELPS:
        return _joined(
            _largest("gain", helps, "log speed-up"), _others("holds it back", "hold it back", slows)
        )
    return _joined(_others("slows", "slow", slows, "On their own "), _others("helps", "help", helps))


def _largest(noun: str, shares: Sequence[Share], whole: str) -> str:
    """``The two largest causes are a (x → y), ×1.44 or 61 % of the log slowdown, and b (u → v), ...``."""
    if not shares:
        return f"No single {noun} can be told from noise"
    first = f"{_levels(shares[0])}, {times(shares[0].share.value)}{_points(shares[0], f' of the {whole}')}"
    if len(shares) == 1:
        return f"The only {noun} that stands out is {first}"
    second = f"{_levels(shares[1])}, {times(shares[1].share.value)}{_points(shares[1])}"
    return f"The two largest {noun}s are {first}, and {second}"


def _others(one: str, many: str, shares: Sequence[Share], lead: str = "") -> str:
    """``fusion helps (×0.93)``: at most three switches that all pull one way."""
    if not shares:
        return ""
    named = [f"{clean(share.switch)} ({times(share.share.value)})" for share in shares[:3]]
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"{lead}{listed} {one if len(named) == 1 else many}"


def _joined(first: str, second: str) -> str:
    return "; ".join(filter(None, (first, second))) + "."


def _levels(share: Share) -> str:
    return f"{clean(share.switch)} ({clean(share.standard)} → {clean(share.flash)})"


def _points(share: Share, of_what: str = "") -> str:
    return "" if share.percent is None else f" or {share.percent.value:.0f} %{of_what}"


def pair_effect(interaction: Interaction) -> Interval:
    """Time of both over the product of their own effects, over both backgrounds where that was measured."""
    sides = (interaction.ratio, interaction.ratio_on_standard, interaction.ratio_on_flash)
    return next((side for side in sides if side is not None and bounded(side)), interaction.ratio_on_standard)


def confirmed_interactions(attribution: Attribution) -> list[Interaction]:
    """Confirmed pairs, the strongest first."""
    pairs = [pair for pair in attribution.interactions if pair.confirmed]
    return sorted(pairs, key=lambda pair: -abs(math.log(pair_effect(pair).value)))


def interaction_summary(attribution: Attribution) -> str:
    """What was found where no pair was confirmed: ``none found above 4 %``, or that none was looked for."""
    if not attribution.interactions:
        return "not measured"
    smallest = attribution.smallest_detectable_interaction
    if smallest is not None and smallest > _TELLING:
        return "too few blocks to find one"
    return "none confirmed" if smallest is None else f"none found above {(smallest - 1) * 100:.2g} %"


def _interaction(attribution: Attribution) -> str:
    if sum(share.active for share in attribution.shares) < 2:
        return ""
    found = confirmed_interactions(attribution)
    if not found:
        return f"Interactions between switches: {interaction_summary(attribution)}."
    first, second = map(clean, found[0].switches)
    ratio = pair_effect(found[0])
    more = "more" if ratio.value > 1 else "less"
    size = f"{times(ratio.value)} ({span(ratio)})"
    return (
        f"{first} and {second} interact: together they cost {more} than their own effects multiplied, {size}."
    )


def _advice(advice: Advice) -> str:
    """What to switch back first, and what that gave when the mixture was run."""
    change = f"{clean(advice.switch)} back first ({clean(advice.level_from)} → {clean(advice.level_to)})"
    gain, left = advice.ratio_to_flash, advice.ratio_to_standard
    verdict = effect(gain)
    measured = f"{fixed(gain.value)} of Flash's time ({span(gain)})"
    if verdict == UNCLEAR:
        return f"Switching {change} was run too, and can't be told from Flash: {measured}."
    if verdict == SLOWS:
        return f"Switching {change} was run too, and does not pay: {measured}."
    rest = {
        SLOWS: f"and still {fixed(left.value)} times Standard's",
        HELPS: f"and {fixed(left.value)} of Standard's",
        UNCLEAR: f"and can't be told from Standard ({span(left)} times its time)",
    }[effect(left)]
    return f"Switch {change}: that mixture was run, and takes {measured} {rest}."


def noise_reason(explanation: Explanation) -> str:
    """Why an attribution is not precise: the width that was reached, the machine, and what would help."""
    attribution, environment = explanation.attribution, explanation.environment
    width = "some shares have no interval yet"
    if math.isfinite(attribution.widest_half_width_log):
        width = f"the widest share is known to ±{attribution.widest_half_width_log:.3f} in log units"
    if attribution.widest_half_width_percent is not None:
        width += f" (±{attribution.widest_half_width_percent:.1f} points of the log slowdown)"
    reasons = [f"the machine was busy: {clean(environment.busy_reason) or 'see the environment'}"]
    if not (explanation.busy or environment.busy):
        reasons = []
    reasons.append(f"{worked(attribution)} in {attribution.seconds:.0f} s")
    return f"{width}; {'; '.join(reasons)}. A longer --budget or a quieter machine narrows it."
