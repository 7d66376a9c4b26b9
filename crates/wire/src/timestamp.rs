//! Times as people and clients read them.

use engine::Timestamp;

/// `2026-01-31T09:05:00.123Z`.
pub fn rfc3339(at: Timestamp) -> String {
    let (days, ms) = (at.0.div_euclid(86_400_000), at.0.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
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
    }
}
