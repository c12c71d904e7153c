//! Numbers from measurements: latencies, medians, spread.

use std::time::Duration;

/// Latencies in tenths of a microsecond.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    pub(crate) fn with_capacity(calls: usize) -> Self {
        Self(Vec::with_capacity(calls))
    }

    pub(crate) fn record(&mut self, length: Duration) {
        self.0.push(u32::try_from(length.as_nanos() / 100).unwrap_or(u32::MAX));
    }

    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The latencies below which these parts of a thousand lie, in microseconds.
    pub(crate) fn per_mille<const N: usize>(mut self, parts: [usize; N]) -> [f64; N] {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        parts.map(|part| {
            let at = (self.0.len() * part / 1000).min(last);
            self.0.get(at).map_or(0.0, |tenths| f64::from(*tenths) / 10.0)
        })
    }
}

/// The middle of some numbers; 0 of none.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => 0.0,
        (Some(upper), 1) => *upper,
        (Some(upper), _) => f64::midpoint(sorted[middle - 1], *upper),
    }
}

/// How far some numbers lie apart: (largest - smallest) / median.
pub(crate) fn spread(numbers: &[f64]) -> f64 {
    let largest = numbers.iter().copied().fold(f64::MIN, f64::max);
    let smallest = numbers.iter().copied().fold(f64::MAX, f64::min);
    let middle = median(numbers);
    if middle > 0.0 { (largest - smallest) / middle } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_that_was_recorded() {
        let mut latencies = Latencies::with_capacity(1000);
        (1..=1000).rev().for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let shown = latencies.per_mille([500, 990, 999]).map(|micros| micros.to_string());
        assert_eq!(shown, ["501", "991", "1000"]);
        assert!(Latencies::default().per_mille([500])[0].abs() < f64::EPSILON);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < f64::EPSILON);
        assert!((spread(&[8.0, 10.0, 12.0]) - 0.4).abs() < f64::EPSILON);
        assert!(spread(&[]).abs() < f64::EPSILON);
    }
}
