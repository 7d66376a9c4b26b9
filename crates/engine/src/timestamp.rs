//! Times as people and clients read them.

use crate::ids::Timestamp;

/// `2026-01-31T09:05:00.123Z`.
pub fn rfc3339(at: Timestamp) -> String {
    let (days, ms) = (at.0.div_euclid(86_400_000), at.0.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// `20260131T090500`, for names of files.
pub fn compact(at: Timestamp) -> String {
    let text = rfc3339(at);
    text.chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect()
}

/// Reads `2026-01-31`, `2026-01-31T09:05:00.123Z` and `2026-01-31 09:05:00+02:00`. A time without a zone is
/// UTC.
pub fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.trim().split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time),
        None => (text.trim(), "00:00:00Z"),
    };
    let (time, zone_minutes) = split_zone(time)?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let days = days_of(year, month, day)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - zone_minutes * 60;
    Some(Timestamp(seconds * 1000 + milliseconds(fraction)?))
}

/// The time of day, and the zone's offset from UTC in minutes.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (time, zone) = time.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes] = numbers(&zone[1..], ':')?;
    Some((time, sign * (hours * 60 + minutes)))
}

fn milliseconds(fraction: &str) -> Option<i64> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    digits.parse().ok()
}

fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let digits = |part: &str| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Option<Vec<i64>> =
        text.split(separator).map(|part| if digits(part) { part.parse().ok() } else { None }).collect();
    parts?.try_into().ok()
}

/// The inverse of [`civil`]; `None` for a day that the month does not have.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted_year = year - i64::from(month <= 2);
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    (civil(days) == (year, month, day)).then_some(days)
}

/// Days since 1970-01-01 as a date, counted in eras of 400 years that begin on the first of March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(rfc3339(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp(951_782_400_000)), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp(1_794_783_600_123)), "2026-11-15T23:00:00.123Z");
        assert_eq!(rfc3339(Timestamp(-1)), "1969-12-31T23:59:59.999Z");
        assert_eq!(compact(Timestamp(951_782_400_000)), "20000229T000000");
    }

    #[test]
    fn written_times_are_read_back() {
        for at in [0, -1, 951_782_400_000, 1_794_783_600_123, 4_107_542_399_999] {
            assert_eq!(parse(&rfc3339(Timestamp(at))), Some(Timestamp(at)));
        }
    }

    #[test]
    fn other_spellings_are_read_and_nonsense_is_not() {
        for (text, expected) in [
            ("2000-02-29", 951_782_400_000),
            ("2000-02-29T00:00:00", 951_782_400_000),
            ("2000-02-29T02:00:00.1234567+02:00", 951_782_400_123),
            ("2000-02-28 23:00:00.5-01:00", 951_782_400_500),
        ] {
            assert_eq!(parse(text), Some(Timestamp(expected)), "{text}");
        }
        for bad in
            ["", "soon", "2001-02-29", "2026-13-01", "2026-01-01T25:00:00Z", "2026-1", "2026-01-01T1:2:3.x"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
