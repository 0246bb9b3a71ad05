"""Parse lines of a cron table and compute when they are due.

A line has five fields, separated by white space:

    minute hour day-of-month month day-of-week

Each field is a list of values, ranges and steps: '*', '5', '1-5', '*/15',
'8-18/2' or '1,15,30'.  Months and days can be written with three letters.
A day matches if either of the two day fields matches, unless one of them
is '*', in which case only the other one counts.
"""

import calendar
import datetime


class CronError(ValueError):
    """Raised for a field that cannot be parsed."""


class Field:
    """One field of a line: its name, its limits and the names of values."""

    def __init__(self, name, low, high, names=()):
        self.name = name
        self.low = low
        self.high = high
        self.names = {n.lower(): i for i, n in enumerate(names, low)}

    def parse(self, text):
        """Return the set of values that *text* stands for."""
        values = set()
        for part in text.split(","):
            values.update(self._parse_part(part))
        return values

    def _parse_part(self, part):
        body, slash, step_text = part.partition("/")
        step = 1
        if slash:
            if not step_text.isdigit() or int(step_text) == 0:
                raise CronError("bad step %r in field %s"
                                % (step_text, self.name))
            step = int(step_text)
        if body == "*":
            first, last = self.low, self.high
        else:
            left, dash, right = body.partition("-")
            first = self._value(left)
            if dash:
                last = self._value(right)
            else:
                # '5/10' means every tenth value, beginning with 5.
                last = self.high if slash else first
        if first > last:
            raise CronError("range %r of field %s is empty"
                            % (body, self.name))
        return range(first, last + 1, step)

    def _value(self, text):
        key = text.lower()
        if key in self.names:
            return self.names[key]
        if not text.isdigit():
            raise CronError("bad value %r in field %s" % (text, self.name))
        value = int(text)
        if not self.low <= value <= self.high:
            raise CronError("value %d of field %s is not in the range %d-%d"
                            % (value, self.name, self.low, self.high))
        return value


MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY = Field("day of month", 1, 31)
MONTH = Field("month", 1, 12, calendar.month_abbr[1:])
# Sunday is both 0 and 7.
WEEKDAY = Field("day of week", 0, 7,
                ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"))
WEEKDAY.names["sun"] = 0

SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


class Schedule:
    """The times at which one line of a cron table is due."""

    # After this many years without a match there will never be one, as
    # with the 30th of February.  Leap days can be eight years apart.
    horizon = 9

    def __init__(self, text):
        self.text = text
        fields = SHORTCUTS.get(text, text).split()
        if len(fields) != 5:
            raise CronError("expected 5 fields, found %d" % len(fields))
        minute, hour, day, month, weekday = fields
        self.minutes = sorted(MINUTE.parse(minute))
        self.hours = sorted(HOUR.parse(hour))
        self.days = DAY.parse(day)
        self.months = MONTH.parse(month)
        self.weekdays = {value % 7 for value in WEEKDAY.parse(weekday)}
        self.any_day = day == "*"
        self.any_weekday = weekday == "*"

    def __repr__(self):
        return "Schedule(%r)" % self.text

    def matches_date(self, date):
        """Return true if the line is due at some time of *date*."""
        if date.month not in self.months:
            return False
        day = date.day in self.days
        # isoweekday() counts Monday as 1 and Sunday as 7.
        weekday = date.isoweekday() % 7 in self.weekdays
        if self.any_day:
            return weekday
        if self.any_weekday:
            return day
        return day or weekday

    def times(self, date):
        """Yield the times of one day, in order."""
        for hour in self.hours:
            for minute in self.minutes:
                yield datetime.datetime(date.year, date.month, date.day,
                                        hour, minute)

    def next_after(self, moment):
        """Return the first time that is later than *moment*, or None."""
        date = moment.date()
        last_year = date.year + self.horizon
        while date.year <= last_year:
            if date.month not in self.months:
                date = first_of_next_month(date)
                continue
            if self.matches_date(date):
                for time in self.times(date):
                    if time > moment:
                        return time
            date += datetime.timedelta(days=1)
        return None

    def upcoming(self, moment, count):
        """Return a list of the next *count* times after *moment*."""
        result = []
        while len(result) < count:
            moment = self.next_after(moment)
            if moment is None:
                break
            result.append(moment)
        return result


def first_of_next_month(date):
    if date.month == 12:
        return datetime.date(date.year + 1, 1, 1)
    return datetime.date(date.year, date.month + 1, 1)


def read_table(lines):
    """Yield (schedule, command) for each entry of a cron table.

    Empty lines and lines that begin with '#' are ignored.
    """
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("@"):
            spec, _, command = line.partition(" ")
        else:
            parts = line.split(None, 5)
            spec, command = " ".join(parts[:5]), "".join(parts[5:])
        if not command:
            raise CronError("line %d: no command" % number)
        try:
            yield Schedule(spec), command.strip()
        except CronError as exc:
            raise CronError("line %d: %s" % (number, exc)) from None
