//! Medians and percentiles: what is left of samples once noise has had its say.

use std::time::Duration;

#[derive(Default, Clone)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// Nearest rank; 0 without samples.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

pub fn micros(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e6
}

pub fn millis(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::Samples;

    fn check(values: &[f64], median: f64, p99: f64) {
        let mut samples = Samples::default();
        values.iter().for_each(|value| samples.push(*value));
        assert_eq!((samples.median(), samples.percentile(99.0)), (median, p99));
    }

    #[test]
    fn percentiles_are_samples_that_were_taken() {
        check(&[], 0.0, 0.0);
        check(&[7.0], 7.0, 7.0);
        check(&[3.0, 1.0, 2.0], 2.0, 3.0);
        check(&[4.0, 1.0, 3.0, 2.0], 2.0, 4.0);
    }
}
