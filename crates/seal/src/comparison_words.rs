//! Two words that both screens show during pairing, so that people can check that they admit the right device.

const FIRST: [&str; 64] = [
    "amber", "ashen", "azure", "black", "blue", "bold", "brave", "bright", "broad", "bronze", "brown",
    "calm", "clear", "cold", "copper", "coral", "crisp", "dark", "deep", "dry", "early", "fair", "fast",
    "fine", "fresh", "gentle", "gold", "grand", "green", "grey", "happy", "hazel", "high", "ivory", "jade",
    "keen", "kind", "large", "late", "light", "lime", "little", "loud", "lucky", "mild", "navy", "new",
    "noble", "olive", "open", "pale", "pink", "plain", "proud", "quick", "quiet", "red", "round", "ruby",
    "silver", "slow", "soft", "warm", "white",
];
const SECOND: [&str; 64] = [
    "anchor", "apple", "badger", "beach", "bear", "bell", "bird", "boat", "bridge", "brook", "candle",
    "castle", "cedar", "cloud", "comet", "crane", "deer", "dolphin", "eagle", "ember", "falcon", "fern",
    "field", "finch", "forest", "fox", "garden", "goose", "harbour", "hawk", "heron", "hill", "horse",
    "island", "lake", "lantern", "leaf", "lion", "maple", "meadow", "moon", "mountain", "otter", "owl",
    "pearl", "pine", "planet", "plum", "raven", "river", "robin", "rope", "sail", "seal", "ship", "star",
    "stone", "swan", "tiger", "tower", "valley", "violin", "whale", "willow",
];

pub fn two(digest: &[u8; 32]) -> String {
    let pick = |words: &[&'static str; 64], byte: u8| words[usize::from(byte % 64)];
    format!("{} {}", pick(&FIRST, digest[0]), pick(&SECOND, digest[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_there_twice() {
        let mut all: Vec<&str> = FIRST.iter().chain(&SECOND).copied().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), FIRST.len() + SECOND.len());
        assert_eq!(two(&[0; 32]), "amber anchor");
    }
}
