//! Texts of the program with places for the values of a row.
//!
//! Promise: the stored replies and events of a big database are the program's own, because they are
//! cut from real ones. A change of their format needs no change here.

/// What differs from row to row in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The 26 characters of the charge's id, which its card's id has too.
    Id,
    /// Unix seconds.
    Created,
    Customer,
    Amount,
    Order,
}

/// The values of one row.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    pub(crate) id: &'a str,
    pub(crate) created: &'a str,
    pub(crate) customer: &'a str,
    pub(crate) amount: &'a str,
    pub(crate) order: &'a str,
}

/// A text that was cut at each of its marks.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    /// What is in front of each mark, and the mark.
    pieces: Vec<(String, Mark)>,
    end: String,
}

impl Template {
    /// Cuts `text` wherever one of the marked values stands.
    pub(crate) fn cut(text: &str, marks: &[(&str, Mark)]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        loop {
            let next = marks.iter().filter_map(|(value, mark)| {
                let (before, after) = rest.split_once(value)?;
                Some((before, after, *mark))
            });
            let Some((before, after, mark)) = next.min_by_key(|(before, ..)| before.len()) else {
                let end = rest.to_owned();
                return Self { pieces, end };
            };
            pieces.push((before.to_owned(), mark));
            rest = after;
        }
    }

    /// Writes the text with the values of a row into `out`, which is emptied first.
    pub(crate) fn fill(&self, values: &Values<'_>, out: &mut String) {
        out.clear();
        for (before, mark) in &self.pieces {
            out.push_str(before);
            out.push_str(match mark {
                Mark::Id => values.id,
                Mark::Created => values.created,
                Mark::Customer => values.customer,
                Mark::Amount => values.amount,
                Mark::Order => values.order,
            });
        }
        out.push_str(&self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_filled_with_the_values_of_another_row() {
        let marks = [("01abc", Mark::Id), ("cus_7", Mark::Customer)];
        let text = r#"{"id":"ch_01abc","source":"card_01abc","customer":"cus_7","amount":5}"#;
        let template = Template::cut(text, &marks);
        let mut filled = "from the row before".to_owned();
        let mut values = Values {
            id: "01xyz",
            created: "",
            customer: "cus_1234",
            amount: "",
            order: "",
        };
        template.fill(&values, &mut filled);
        let expected =
            r#"{"id":"ch_01xyz","source":"card_01xyz","customer":"cus_1234","amount":5}"#;
        assert_eq!(filled, expected);

        (values.id, values.customer) = ("01abc", "cus_7");
        template.fill(&values, &mut filled);
        assert_eq!(filled, text);
    }

    #[test]
    fn a_text_without_marks_stays_as_it_is() {
        let template = Template::cut("all the same", &[("x", Mark::Id)]);
        let values = Values {
            id: "1",
            created: "2",
            customer: "3",
            amount: "4",
            order: "5",
        };
        let mut filled = String::new();
        template.fill(&values, &mut filled);
        assert_eq!(filled, "all the same");
    }
}
