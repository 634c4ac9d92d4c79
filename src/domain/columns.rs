//! How a row of a table is written as JSON, where PostgreSQL's way is not serde's.

/// A `bytea`: `\x` and hexadecimal digits.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("\\x{}", hex::encode(bytes)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(text.trim_start_matches("\\x")).map_err(D::Error::custom)
    }
}

/// Whether something has happened, as the column says when. What is written happened in this
/// transaction: a statement that writes it keeps an earlier time.
pub(super) mod happened {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};

    pub(crate) fn serialize<S: Serializer>(has: &bool, serializer: S) -> Result<S::Ok, S::Error> {
        // PostgreSQL reads it as the time of the transaction.
        has.then_some("now").serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<bool, D::Error> {
        let at = Option::<IgnoredAny>::deserialize(deserializer)?;
        Ok(at.is_some())
    }
}

/// JSON that an entity has as text, in a column of the type `json`.
pub(super) mod json_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use serde_json::value::RawValue;

    pub(crate) fn serialize<S: Serializer>(
        json: &Option<String>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let json = json.clone().map(RawValue::from_string).transpose();
        json.map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        let json: Option<Box<RawValue>> = Deserialize::deserialize(deserializer)?;
        Ok(json.map(|json| json.get().to_owned()))
    }
}

/// A test card: its canonical token.
pub(super) mod card_token {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::super::test_cards::{TestCard, by_stored_token};

    pub(crate) fn serialize<S: Serializer>(
        card: &&'static TestCard,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(card.token())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static TestCard, D::Error> {
        let token = String::deserialize(deserializer)?;
        by_stored_token(&token).ok_or_else(|| D::Error::custom("a card of another release"))
    }
}

/// What a client wrote and no rule reads: one column, `details`. A row that was written before that
/// column was added has a column for each member instead.
pub(super) mod details {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Written<'a, D> {
        details: &'a D,
    }

    #[derive(Deserialize)]
    struct Read<D> {
        details: Option<D>,
        #[serde(flatten)]
        older: D,
    }

    pub(crate) fn serialize<D: Serialize, S: Serializer>(
        details: &D,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Written { details }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserialize<'de>, De: Deserializer<'de>>(
        deserializer: De,
    ) -> Result<D, De::Error> {
        let read = Read::deserialize(deserializer)?;
        Ok(read.details.unwrap_or(read.older))
    }
}

/// A value that is not NULL in rows of this release, and may be in older ones.
pub(super) fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: serde::Deserialize<'de> + Default,
    D: serde::Deserializer<'de>,
{
    let value: Option<T> = serde::Deserialize::deserialize(deserializer)?;
    Ok(value.unwrap_or_default())
}
