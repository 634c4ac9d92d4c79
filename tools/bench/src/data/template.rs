//! Texts of the program with places for the values of a row.
//!
//! Promise: the stored replies and events of a big database are the program's own, because they are
//! cut from real ones. A change of their format needs no change here.

/// A text that was cut wherever one of some values stood.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    /// What is in front of each value, and which one that is.
    pieces: Vec<(String, usize)>,
    end: String,
}

impl Template {
    pub(crate) fn cut(text: &str, values: &[&str]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        loop {
            let next = values.iter().enumerate().filter_map(|(which, value)| {
                let (before, after) = rest.split_once(value)?;
                Some((before, after, which))
            });
            let Some((before, after, which)) = next.min_by_key(|(before, ..)| before.len()) else {
                let end = rest.to_owned();
                return Self { pieces, end };
            };
            pieces.push((before.to_owned(), which));
            rest = after;
        }
    }

    /// The text with other values, in the same order.
    pub(crate) fn fill(&self, values: &[String]) -> String {
        let mut text = String::new();
        for (before, which) in &self.pieces {
            text.push_str(before);
            text.push_str(values.get(*which).map_or("", String::as_str));
        }
        text.push_str(&self.end);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_filled_with_the_values_of_another_row() {
        let text = r#"{"id":"ch_01abc","source":"card_01abc","customer":"cus_7","amount":5}"#;
        let template = Template::cut(text, &["01abc", "cus_7"]);
        let filled = template.fill(&["01xyz".to_owned(), "cus_1234".to_owned()]);
        let expected =
            r#"{"id":"ch_01xyz","source":"card_01xyz","customer":"cus_1234","amount":5}"#;
        assert_eq!(filled, expected);
        let same = template.fill(&["01abc".to_owned(), "cus_7".to_owned()]);
        assert_eq!(same, text);
    }

    #[test]
    fn a_text_without_marks_stays_as_it_is() {
        let template = Template::cut("all the same", &["x"]);
        assert_eq!(template.fill(&["1".to_owned()]), "all the same");
    }
}
