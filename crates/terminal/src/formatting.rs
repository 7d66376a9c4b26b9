//! Formats numbers and times for people.

/// `0.3 s`, `48 s`, `3 min 20 s`, `2 h 5 min`.
pub fn elapsed(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 if ms < 100 => format!("{ms} ms"),
        0..=9 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// The same without fractions of seconds, for running times.
pub fn seconds(ms: u64) -> String {
    if ms < 10_000 { format!("{} s", ms / 1_000) } else { elapsed(ms) }
}

/// An age: `now`, `5 min`, `3 h`, `12 d`.
pub fn age(ms: i64) -> String {
    let minutes = ms.max(0) / 60_000;
    match minutes {
        0 => "now".into(),
        1..=59 => format!("{minutes} min"),
        60..=1_439 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1_440),
    }
}

/// How long an "always" answer holds: as a rule of the folder, or in the session alone.
pub fn lasts(makes_rules: bool) -> &'static str {
    if makes_rules { "in this folder" } else { "in this session" }
}

pub fn bytes(count: u64) -> String {
    match count {
        0..=1_023 => format!("{count} B"),
        1_024..=1_048_575 => format!("{} KB", count / 1_024),
        _ => format!("{} MB", count / 1_048_576),
    }
}

/// Says that not everything is shown, for a person who has to decide.
pub fn unshown(bytes: u64) -> String {
    match bytes {
        1 => "… 1 byte is not shown".into(),
        _ => format!("… {bytes} bytes are not shown"),
    }
}

pub fn money(usd: f64) -> String {
    if usd > 0.0 && usd < 0.01 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// `1 file`, `3 files`.
pub fn counted(count: u32, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_short() {
        let times = [40, 900, 9_960, 48_000, 200_000, 7_500_000].map(elapsed);
        assert_eq!(times, ["40 ms", "0.9 s", "9.9 s", "48 s", "3 min 20 s", "2 h 5 min"]);
        assert_eq!([0, 2_900, 61_000].map(seconds), ["0 s", "2 s", "1 min 1 s"]);
        assert_eq!([-5, 61_000, 7_200_000, 200_000_000].map(age), ["now", "1 min", "2 h", "2 d"]);
        assert_eq!([12, 2_048, 3 << 20].map(bytes), ["12 B", "2 KB", "3 MB"]);
        assert_eq!([0.0, 0.0042, 0.42].map(money), ["$0.00", "$0.0042", "$0.42"]);
        assert_eq!([counted(1, "file"), counted(0, "file")], ["1 file", "0 files"]);
    }
}
