//! The date of an ITCH file. Its timestamps count from midnight in New York, and name no day.

use jiff::civil::Date;
use jiff::tz::TimeZone;

/// Rules since 2007, for machines without a time zone database.
const NEW_YORK_RULES: &str = "EST5EDT,M3.2.0,M11.1.0";

/// The date in a file name: the first run of exactly eight digits that is one, as `MMDDYYYY` (as
/// Nasdaq names its files, e.g. `01302019.NASDAQ_ITCH50.gz`) or as `YYYYMMDD`.
pub fn date_in_file_name(name: &str) -> Option<Date> {
    name.split(|character: char| !character.is_ascii_digit())
        .filter(|digits| digits.len() == 8)
        .find_map(|digits| month_first(digits).or_else(|| year_first(digits)))
}

/// Midnight in New York at the start of that day, Unix nanoseconds. `None` when it is before 1970
/// or after 2554.
pub fn midnight_unix_ns(date: Date) -> Option<u64> {
    let new_york =
        TimeZone::get("America/New_York").or_else(|_| TimeZone::posix(NEW_YORK_RULES)).ok()?;
    let midnight = date.to_zoned(new_york).ok()?.timestamp();
    u64::try_from(midnight.as_nanosecond()).ok()
}

fn month_first(digits: &str) -> Option<Date> {
    date(&digits[4..], &digits[..2], &digits[2..4])
}

fn year_first(digits: &str) -> Option<Date> {
    date(&digits[..4], &digits[4..6], &digits[6..])
}

/// Only years that electronic feeds have: so no eight digits are a date in both orders.
fn date(year: &str, month: &str, day: &str) -> Option<Date> {
    let year: i16 = year.parse().ok().filter(|year| (1990..2100).contains(year))?;
    Date::new(year, month.parse().ok()?, day.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn nasdaqs_file_names_tell_the_date() {
        let cases = [
            ("01302019.NASDAQ_ITCH50.gz", Some(date(2019, 1, 30))),
            ("S12302019-v50", Some(date(2019, 12, 30))),
            ("20190730.PSX_ITCH_50", Some(date(2019, 7, 30))),
            ("feed_20190130_093000.itch50", Some(date(2019, 1, 30))),
            ("12312019", Some(date(2019, 12, 31))),
            ("13322019.itch", None),
            ("0130201.itch", None),
            ("013020190.itch", None),
            ("day.itch", None),
        ];
        for (name, expected) in cases {
            assert_eq!(date_in_file_name(name), expected, "{name}");
        }
    }

    #[test]
    fn midnight_in_new_york_follows_daylight_saving() {
        let hour = 3_600_000_000_000;
        let winter = 1_548_806_400_000_000_000; // 2019-01-30T00:00:00Z
        assert_eq!(midnight_unix_ns(date(2019, 1, 30)), Some(winter + 5 * hour));
        let summer = 1_564_444_800_000_000_000; // 2019-07-30T00:00:00Z
        assert_eq!(midnight_unix_ns(date(2019, 7, 30)), Some(summer + 4 * hour));
    }

    #[test]
    fn the_rules_without_a_database_agree_with_it() {
        let Ok(database) = TimeZone::get("America/New_York") else {
            eprintln!("SKIPPED: this machine has no time zone database");
            return;
        };
        let rules = TimeZone::posix(NEW_YORK_RULES).unwrap();
        for (month, day) in [(3, 8), (3, 12), (7, 1), (11, 1), (11, 8), (12, 31)] {
            let day = date(2024, month, day);
            let by_rules = day.to_zoned(rules.clone()).unwrap().timestamp();
            assert_eq!(by_rules, day.to_zoned(database.clone()).unwrap().timestamp());
        }
    }

    #[test]
    fn a_date_that_no_u64_can_hold_is_refused() {
        assert_eq!(midnight_unix_ns(date(1969, 12, 30)), None);
        assert_eq!(midnight_unix_ns(date(9000, 1, 1)), None);
    }
}
