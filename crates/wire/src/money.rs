//! Costs as clients see them: an amount, nothing, or an incomplete amount.

use engine::Totals;
use serde_json::Value;

/// Marks an object whose cost is unknown or incomplete. An object with a complete cost is unchanged.
pub(crate) fn mark(mut object: Value, key: &str, unpriced: bool) -> Value {
    if unpriced && let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), true.into());
    }
    object
}

/// `$0.1200`, `cost unknown` or `$0.1200 + unknown`; `None` if nothing was spent.
pub fn text(totals: &Totals) -> Option<String> {
    match (totals.unpriced, totals.cost_usd > 0.0) {
        (false, false) => None,
        (false, true) => Some(format!("${:.4}", totals.cost_usd)),
        (true, false) => Some("cost unknown".to_owned()),
        (true, true) => Some(format!("${:.4} + unknown", totals.cost_usd)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_cost_is_never_nothing() {
        let totals = |cost_usd, unpriced| Totals { cost_usd, unpriced, ..Totals::default() };
        let said = [(0.0, false), (0.12, false), (0.0, true), (0.12, true)].map(|(usd, open)| {
            let totals = totals(usd, open);
            (text(&totals), totals.known_usd())
        });
        let expected = [
            (None, Some(0.0)),
            (Some("$0.1200".to_owned()), Some(0.12)),
            (Some("cost unknown".to_owned()), None),
            (Some("$0.1200 + unknown".to_owned()), Some(0.12)),
        ];
        assert_eq!(said, expected);
        assert_eq!(mark(json!({ "a": 1 }), "costUnknown", true), json!({ "a": 1, "costUnknown": true }));
        assert_eq!(mark(json!({ "a": 1 }), "costUnknown", false), json!({ "a": 1 }));
    }
}
