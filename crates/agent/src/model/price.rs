//! Token prices.

use engine::Usage;

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
    /// The price of calls above a number of input tokens.
    pub above: Option<LongPrice>,
}

/// The price of long calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongPrice {
    pub tokens: u64,
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
}

impl Price {
    pub const FREE: Price = Price { input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0, above: None };

    /// The cost of one call. `input` counts tokens that were neither read from nor written to a cache.
    pub fn of(&self, usage: &Usage) -> f64 {
        let said = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let price = self.at(said);
        let parts = [
            (usage.input, price.input),
            (usage.output, price.output),
            (usage.cache_read, price.cache_read),
            (usage.cache_write, price.cache_write),
        ];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>() / 1e6
    }

    /// The cost of this many uncached input tokens.
    pub fn of_input(&self, tokens: u64) -> f64 {
        tokens as f64 * self.at(tokens).input / 1e6
    }

    fn at(&self, said: u64) -> Self {
        match self.above {
            Some(long) if said > long.tokens => Self {
                input: long.input,
                output: long.output,
                cache_read: long.cache_read,
                cache_write: long.cache_write,
                above: None,
            },
            _ => *self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_call_costs_what_long_calls_cost() {
        let long = LongPrice { tokens: 1000, input: 4.0, output: 20.0, cache_read: 0.4, cache_write: 5.0 };
        let price = Price { input: 2.0, output: 10.0, cache_read: 0.2, cache_write: 2.5, above: Some(long) };
        let usage = Usage { input: 500, output: 100, cache_read: 300, cache_write: 200, ..Usage::default() };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(price.of(&usage), (1000.0 + 1000.0 + 60.0 + 500.0) / 1e6));
        let usage = Usage { input: 501, ..usage };
        assert!(near(price.of(&usage), (2004.0 + 2000.0 + 120.0 + 1000.0) / 1e6));
        assert!(near(price.of_input(1000), 0.002) && near(price.of_input(1001), 0.004_004));
        assert_eq!(Price::FREE.of(&usage), 0.0);
    }
}
