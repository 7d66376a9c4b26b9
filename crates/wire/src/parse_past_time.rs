//! A moment in the past, as people type it.

use engine::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastTime {
    AgoMs(i64),
    At(Timestamp),
}

impl PastTime {
    pub fn parse(text: &str) -> Result<Self, String> {
        ago(text)
            .map(Self::AgoMs)
            .or_else(|| crate::timestamp::parse(text).map(Self::At))
            .ok_or_else(|| "write 30m, 2h, 3d, 1w or a date such as 2026-01-31".to_owned())
    }

    pub fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::AgoMs(ms) => Timestamp(now.0.saturating_sub(ms)),
            Self::At(at) => at,
        }
    }
}

fn ago(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let unit_ms: i64 = match unit {
        's' => 1000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        'w' => 7 * 86_400_000,
        _ => return None,
    };
    let number = &text[..text.len() - 1];
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<i64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_dates_are_understood_and_nothing_else() {
        assert_eq!(PastTime::parse("2h"), Ok(PastTime::AgoMs(7_200_000)));
        assert_eq!(PastTime::parse("1w"), Ok(PastTime::AgoMs(604_800_000)));
        assert_eq!(PastTime::parse("2000-02-29"), Ok(PastTime::At(Timestamp(951_782_400_000))));
        for bad in ["", "h", "-2h", "2x", "yesterday", "2h3m", "99999999999999999999d", "ü"] {
            assert!(PastTime::parse(bad).is_err(), "{bad}");
        }
    }
}
