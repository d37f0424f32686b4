//! "Did you mean": which of the known names is most like the one that was typed.

/// The name that is most like `typed`, if it differs by few letters: one in four, three at most.
pub(crate) fn nearest<'a>(typed: &str, known: &'a [String]) -> Option<&'a str> {
    let most = (typed.chars().count() / 4).clamp(1, 3);
    let alike = known.iter().map(|name| (strsim::damerau_levenshtein(typed, name), name.as_str()));
    let best = alike.filter(|(letters, _)| *letters <= most).min_by_key(|(letters, _)| *letters);
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_few_wrong_letters_is_found_and_another_is_not() {
        let known = ["shop/orders".to_owned(), "shop/leases".to_owned()];
        assert_eq!(nearest("shop/order", &known), Some("shop/orders"));
        assert_eq!(nearest("shop/laeses", &known), Some("shop/leases"));
        assert_eq!(nearest("Shop/Orders", &known), Some("shop/orders"));
        assert_eq!(nearest("accounts/x", &known), None);
        assert_eq!(nearest("shop/rejected", &known), None, "the same database is not enough");
        assert_eq!(nearest("x", &[]), None);
    }
}
