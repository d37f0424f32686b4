//! "Did you mean": which of the known names is most like the one that was typed.

/// Below this names have little in common.
const LEAST: f64 = 0.75;

/// The name that is most like `typed`, if any is.
pub(crate) fn nearest<'a>(typed: &str, known: &'a [String]) -> Option<&'a str> {
    let alike = known.iter().map(|name| (strsim::jaro_winkler(typed, name), name.as_str()));
    let best = alike.filter(|(score, _)| *score >= LEAST).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_one_wrong_letter_is_found_and_another_is_not() {
        let known = ["shop/orders".to_owned(), "shop/leases".to_owned()];
        assert_eq!(nearest("shop/order", &known), Some("shop/orders"));
        assert_eq!(nearest("shop/laeses", &known), Some("shop/leases"));
        assert_eq!(nearest("accounts/x", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
