//! Enums as clients see them: one of a fixed set of names.

/// Declares the view of each enum, which needs to know neither serde nor utoipa.
/// `pub ColorView of Color: "What it looks like.";` makes `pub struct ColorView(pub Color);`, which
/// is serialized as `Color::as_str()` has it, such as `"red"`. Its schema has the enum's name and
/// the names of `Color::ALL`: `{"type": "string", "enum": ["red", "blue"], …}`.
#[macro_export]
macro_rules! names {
    ($($vis:vis $view:ident of $name:ident: $about:literal;)+) => {$(
        #[doc = $about]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis struct $view(pub $name);

        impl $crate::openapi::serde::Serialize for $view {
            fn serialize<S: $crate::openapi::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.as_str())
            }
        }

        impl $crate::openapi::utoipa::PartialSchema for $view {
            fn schema() -> $crate::openapi::utoipa::openapi::RefOr<$crate::openapi::utoipa::openapi::Schema> {
                $crate::openapi::utoipa::openapi::ObjectBuilder::new()
                    .schema_type($crate::openapi::utoipa::openapi::Type::String)
                    .description(Some($about))
                    .enum_values(Some($name::ALL.iter().map(|known| known.as_str())))
                    .into()
            }
        }

        impl $crate::openapi::utoipa::ToSchema for $view {
            fn name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )+};
}
