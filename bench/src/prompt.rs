//! What a prompt asks the reference agents to do: the same words the product's offline model takes.

const CHUNK_BYTES_DEFAULT: usize = 100;
const TICK_MICROS_DEFAULT: u64 = 1000;
const CHUNK_BYTES_MAX: usize = 1 << 20;

pub enum Wish {
    /// `stream N [BYTES]`: N chunks of BYTES bytes of text.
    Stream { chunks: u64, text: String },
    /// `sleep MS`: a turn that takes so long, unless it is cancelled.
    Sleep { millis: u64 },
    /// `tick N US`: N chunks, so many microseconds apart, each the time at which it was sent and a semicolon.
    Tick { chunks: u64, micros: u64 },
    /// Anything else: one chunk.
    Say,
}

impl Wish {
    pub fn parse(prompt: &str) -> Self {
        let mut words = prompt.split_whitespace();
        let (verb, number) = (words.next(), words.next().and_then(|word| word.parse().ok()));
        match (verb, number) {
            (Some("stream"), Some(chunks)) => {
                let bytes = words.next().and_then(|word| word.parse().ok()).unwrap_or(CHUNK_BYTES_DEFAULT);
                Self::Stream { chunks, text: "x".repeat(bytes.min(CHUNK_BYTES_MAX)) }
            }
            (Some("tick"), Some(chunks)) => {
                let micros = words.next().and_then(|word| word.parse().ok()).unwrap_or(TICK_MICROS_DEFAULT);
                Self::Tick { chunks, micros }
            }
            (Some("sleep"), Some(millis)) => Self::Sleep { millis },
            _ => Self::Say,
        }
    }
}

/// Nanoseconds since 1970: a clock that two processes share.
#[expect(clippy::disallowed_methods, reason = "what is measured is the time between two processes")]
pub fn nanos() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}
