//! When a request is retried, and how long to wait before that.
//!
//! Decisions only: the caller does the waiting. If a provider says how long to wait, that is used, unless it
//! is longer than a person would wait for.
//!
//! The loop that sends a request again is in `model_call.rs`.

use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use super::{ModelError, ModelErrorKind};

pub(super) const TRIES_MAX: u32 = 5;
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    AskAgain { after: Duration },
    GiveUp,
}

/// The remaining limits on waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitLimits {
    /// If the provider demands a longer wait than this, the call fails with that message.
    pub(super) requested_max: Duration,
    /// The time left for the whole call.
    pub(super) left: Duration,
}

/// `tries` have failed, the last one with `error`. `chance` is any number below 1.
pub(super) fn after(error: &ModelError, tries: u32, chance: f64, limits: WaitLimits) -> RetryDecision {
    let ModelErrorKind::Transient { retry_after } = error.kind else {
        return RetryDecision::GiveUp;
    };
    match retry_after {
        _ if tries >= TRIES_MAX => RetryDecision::GiveUp,
        Some(asked) if asked > limits.requested_max => RetryDecision::GiveUp,
        Some(asked) => RetryDecision::AskAgain { after: asked },
        None => {
            let doubled = FIRST.saturating_mul(1 << (tries.clamp(1, 8) - 1));
            let spread = doubled.mul_f64(1.0 + 0.25 * chance.clamp(0.0, 1.0)).min(LONGEST);
            if spread < limits.left {
                RetryDecision::AskAgain { after: spread }
            } else {
                RetryDecision::GiveUp
            }
        }
    }
}

/// `1 day 2 h`, the two largest units.
pub(super) fn format_wait(wait: Duration) -> String {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = parts.iter().skip(first).take(2).filter(|(count, _)| *count > 0);
    let shown: Vec<_> = shown.map(|(count, unit)| format!("{count} {unit}")).collect();
    if shown.is_empty() { "0 s".into() } else { shown.join(" ") }
}

/// The wait that the provider demands.
pub(super) fn requested_wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let millis = text("retry-after-ms").and_then(|value| value.trim().parse::<f64>().ok());
    if let Some(millis) = millis.filter(|millis| millis.is_finite() && *millis >= 0.0) {
        return Some(Duration::from_secs_f64((millis / 1000.0).min(1e9)));
    }
    let value = text(RETRY_AFTER.as_str())?.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(1e9)));
    }
    // "Now" is taken from the response's date, so that our clock need not be right.
    let (until, now) = (http_date(value)?, http_date(text(DATE.as_str())?)?);
    Some(Duration::from_secs(until.saturating_sub(now)))
}

/// Seconds since 1970 of `Wed, 21 Oct 2015 07:28:00 GMT`, the only form that is still in use.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = text.split_once(", ")?.1.split(' ');
    let day: u64 = parts.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = parts.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock =
        parts.next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok().filter(|part| *part < 61));
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    // Years are counted from March, so that the leap day is the last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expected: Option<f64>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        assert_eq!(requested_wait(&map).map(|wait| wait.as_secs_f64()), expected, "{headers:?}");
    }

    #[test]
    fn a_provider_says_how_long_in_four_ways() {
        check(&[("retry-after-ms", "900"), ("retry-after", "7")], Some(0.9));
        check(&[("retry-after", "7")], Some(7.0));
        check(&[("retry-after", "1.5")], Some(1.5));
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        check(&[date, ("retry-after", "Wed, 21 Oct 2015 07:28:20 GMT")], Some(20.0));
        check(&[date, ("retry-after", "Wed, 21 Oct 2015 07:27:20 GMT")], Some(0.0));
        check(&[("retry-after", "Wed, 21 Oct 2015 07:28:20 GMT")], None);
        check(&[("retry-after", "-1")], None);
        check(&[("retry-after", "soon")], None);
        check(&[("retry-after", "inf")], None);
        check(&[], None);
    }

    #[test]
    fn a_date_is_counted_over_leap_years() {
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        assert_eq!(http_date("Mon, 16 Nov 2026 08:30:00 GMT"), Some(1_794_817_800));
        assert_eq!(http_date("Mon, 99 Nov 2026 08:30:00 GMT"), None);
    }

    const LIMITS: WaitLimits =
        WaitLimits { requested_max: Duration::from_secs(60), left: Duration::from_secs(600) };

    #[test]
    fn a_wait_is_told_in_the_units_that_fit() {
        for (seconds, told) in [
            (0.0, "0 s"),
            (0.2, "1 s"),
            (61.0, "1 min 1 s"),
            (3600.0, "1 h"),
            (86_400.0, "1 d"),
            (100_000.0, "1 d 3 h"),
        ] {
            assert_eq!(format_wait(Duration::from_secs_f64(seconds)), told);
        }
    }

    #[test]
    fn nothing_is_asked_again_when_the_time_for_it_is_over() {
        let error = ModelError::transient("busy");
        let short = WaitLimits { left: Duration::from_secs(1), ..LIMITS };
        assert_eq!(after(&error, 1, 0.0, short), RetryDecision::GiveUp);
        let asked = |seconds| ModelErrorKind::Transient { retry_after: Some(Duration::from_secs(seconds)) };
        let busy = |seconds| ModelError { text: "busy".into(), kind: asked(seconds) };
        // What the provider asks for is not taken from the time that it has.
        let after_it = RetryDecision::AskAgain { after: Duration::from_secs(60) };
        assert_eq!(after(&busy(60), 1, 0.0, short), after_it);
        assert_eq!(after(&busy(61), 1, 0.0, LIMITS), RetryDecision::GiveUp);
    }

    #[test]
    fn waits_double_up_to_a_limit_and_end() {
        let error = ModelError::transient("busy");
        let seconds = |tries, chance| match after(&error, tries, chance, LIMITS) {
            RetryDecision::AskAgain { after } => Some(after.as_secs_f64()),
            RetryDecision::GiveUp => None,
        };
        assert_eq!(
            [seconds(1, 0.0), seconds(2, 0.0), seconds(3, 1.0), seconds(4, 0.0), seconds(5, 0.0)],
            [Some(2.0), Some(4.0), Some(10.0), Some(16.0), None]
        );
    }

    #[test]
    fn what_lasts_is_not_asked_again() {
        let permanent = ModelError::permanent("no");
        let too_long = ModelError { text: "long".into(), kind: ModelErrorKind::TooLong };
        let hours = Some(Duration::from_secs(7200));
        let patient = ModelError { text: "".into(), kind: ModelErrorKind::Transient { retry_after: hours } };
        for error in [permanent, too_long, patient] {
            assert_eq!(after(&error, 1, 0.5, LIMITS), RetryDecision::GiveUp, "{error}");
        }
    }
}
