"""Milliseconds to RFC 3339 and back, in whole numbers.

The engine keeps integer milliseconds since 1970 and shows `2026-01-04T15:45:00Z`. Integer arithmetic is exact over the
whole range and spares every command-line process the import of `datetime`. The calendar is the proleptic Gregorian
one; leap seconds do not exist in it, and a written :60 is the first instant of the next minute.
"""

from __future__ import annotations

# RFC 3339 writes a year with four digits, so nothing outside these instants can be said in it.
FIRST_MS = -62_167_219_200_000  # 0000-01-01T00:00:00Z
LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

_DAY_S = 86_400
_DAY_MS = 86_400_000
# Days are counted in eras of 400 years from 0000-03-01: with March first, the leap day ends the year.
_ERA_DAYS = 146_097
_DAYS_TO_1970 = 719_468


def iso(ms: int) -> str:
    """The instant in UTC, with milliseconds only where there are some. Beyond the years 0000 to 9999: the nearest."""
    seconds, fraction = divmod(min(max(ms, FIRST_MS), LAST_MS), 1000)
    text = _SECONDS.get(seconds) or _to_the_second(seconds)
    return f"{text}.{fraction:03}Z" if fraction else f"{text}Z"


# Nearly all that are asked for are of this minute, and all days today.
_SECONDS: dict[int, str] = {}
_DATES: dict[int, str] = {}
_KEPT_MAX = 1_000


def _to_the_second(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY_S)
    date = _DATES.get(days)
    if date is None:
        if len(_DATES) >= _KEPT_MAX:
            _DATES.clear()
        date = _DATES[days] = "{:04}-{:02}-{:02}".format(*_civil(days))
    if len(_SECONDS) >= _KEPT_MAX:
        _SECONDS.clear()
    text = _SECONDS[seconds] = f"{date}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return text


def parse_iso(text: object) -> int | None:
    """The instant an RFC 3339 text names, or None if it is none. Digits finer than a millisecond are cut off.

    An offset is required: without one the text names a different instant in every place that reads it.
    """
    if not isinstance(text, str) or not text.isascii() or len(text) < 20:
        return None
    if text[4] != "-" or text[7] != "-" or text[10] not in "Tt " or text[13] != ":" or text[16] != ":":
        return None
    day_ms = _parse_date(text[0:4], text[5:7], text[8:10])
    clock_ms = _parse_clock(text[11:13], text[14:16], text[17:19])
    fraction, offset = _split_fraction(text[19:])
    offset_ms = _parse_offset(offset)
    if day_ms is None or clock_ms is None or fraction is None or offset_ms is None:
        return None
    return day_ms + clock_ms + fraction - offset_ms


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day counted from 1970-01-01."""
    era, day_of_era = divmod(days + _DAYS_TO_1970, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def _days(year: int, month: int, day: int) -> int:
    """The day's number counted from 1970-01-01; the inverse of `_civil`."""
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _DAYS_TO_1970


def _parse_date(year: str, month: str, day: str) -> int | None:
    if not (year.isdigit() and month.isdigit() and day.isdigit()):
        return None
    if not 1 <= int(month) <= 12:
        return None
    days = _days(int(year), int(month), int(day))
    # A day that its month does not have comes back as another date.
    return days * _DAY_MS if _civil(days) == (int(year), int(month), int(day)) else None


def _parse_clock(hour: str, minute: str, second: str) -> int | None:
    if not (hour.isdigit() and minute.isdigit() and second.isdigit()):
        return None
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        return None
    return (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1000


def _split_fraction(tail: str) -> tuple[int | None, str]:
    """Milliseconds and what follows them; the fraction is optional, but a dot needs digits."""
    if not tail.startswith("."):
        return 0, tail
    offset = tail[1:].lstrip("0123456789")
    digits = tail[1 : len(tail) - len(offset)]
    return (int(digits[:3].ljust(3, "0")) if digits else None), offset


def _parse_offset(text: str) -> int | None:
    if text in ("Z", "z"):
        return 0
    if len(text) != 6 or text[0] not in "+-" or text[3] != ":" or not (text[1:3] + text[4:6]).isdigit():
        return None
    if int(text[1:3]) > 23 or int(text[4:6]) > 59:
        return None
    offset_ms = (int(text[1:3]) * 60 + int(text[4:6])) * 60_000
    return -offset_ms if text[0] == "-" else offset_ms
