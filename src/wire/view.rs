//! How views are declared.

/// Declares views. Each member stands once, with what it shows, in the order that it has in JSON.
///
/// ```text
/// views! {
///     /// A customer, as clients see it.
///     pub struct CustomerView as Customer from customer: &Customer {
///         /// `cus_…`
///         id: String [example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd"] = customer.id.to_string();
///         /// Always `customer`.
///         always object: &'static str = "customer";
///         /// For people.
///         maybe description: String = customer.details.description.clone();
///         null currency, discount;
///     }
/// }
/// ```
///
/// This makes the struct with its schema, which has the name `Customer`, and
/// `impl From<&Customer> for CustomerView`. With `of(…)` in the place of `from …`, it makes an
/// associated function with these parameters. A block after `where` stands in front of what the
/// members show. In brackets is what else the schema says of a member. One that is `always` equal
/// is its own example. One that `maybe` is there is an `Option`, and shown as null without a value;
/// one that is `expandable` is an id, or all of the object.
macro_rules! views {
    () => {};
    ($(#[$meta:meta])* $vis:vis struct $View:ident as $Name:ident from $arg:ident: $Source:ty
        $(where { $($given:tt)* })? { $($members:tt)* } $($more:tt)*) => {
        views! { @members [[$(#[$meta])* $vis struct $View as $Name]
            [impl From<$Source> for $View] [fn from($arg: $Source) -> Self] [$($($given)*)?] {} {}]
            $($members)* }
        views! { $($more)* }
    };
    ($(#[$meta:meta])* $vis:vis struct $View:ident as $Name:ident of($($arg:ident: $Source:ty),*)
        $(where { $($given:tt)* })? { $($members:tt)* } $($more:tt)*) => {
        views! { @members [[$(#[$meta])* $vis struct $View as $Name]
            [impl $View] [/// Shows these.
            $vis fn of($($arg: $Source),*) -> Self] [$($($given)*)?] {} {}]
            $($members)* }
        views! { $($more)* }
    };
    // What is written in a shorter way. `$made` is what is made so far: the struct's head, then of
    // the function its `impl`, its head and what comes first, and then the fields and their values.
    (@members $made:tt null $($name:ident),+; $($rest:tt)*) => {
        views! { @members $made $(
            /// Always null.
            $name: () [required = true, value_type = Option<String>] = ();
        )+ $($rest)* }
    };
    (@members $made:tt $(#[$meta:meta])+ null $name:ident; $($rest:tt)*) => {
        views! { @members $made $(#[$meta])+
            $name: () [required = true, value_type = Option<String>] = (); $($rest)* }
    };
    (@members $made:tt livemode; $($rest:tt)*) => {
        views! { @members $made
            /// Always false: no real card is ever charged.
            always livemode: bool = false; $($rest)* }
    };
    (@members $made:tt created = $created:expr; $($rest:tt)*) => {
        views! { @members $made
            /// Unix seconds.
            created: i64 [example = 1_795_000_000] = $created; $($rest)* }
    };
    (@members $made:tt metadata = $metadata:expr; $($rest:tt)*) => {
        views! { @members $made
            /// Your own names.
            metadata: Metadata [value_type = BTreeMap<String, String>] = $metadata; $($rest)* }
    };
    (@members $made:tt
        $(#[$meta:meta])* always $name:ident: $Type:ty = $value:tt; $($rest:tt)*) => {
        views! { @members $made
            $(#[$meta])* $name: $Type [example = $value] = $value; $($rest)* }
    };
    (@members $made:tt
        $(#[$meta:meta])* expandable $name:ident: $Object:ty = $id:expr; $($rest:tt)*) => {
        views! { @members $made
            $(#[$meta])* maybe $name: Expandable<$Object> [no_recursion] = Expandable::maybe($id);
            $($rest)* }
    };
    (@members $made:tt $(#[$meta:meta])*
        maybe $name:ident: $Type:ty $([$($schema:tt)*])? = $value:expr; $($rest:tt)*) => {
        views! { @members $made
            $(#[$meta])* $name: Option<$Type> [required = true $(, $($schema)*)?] = $value;
            $($rest)* }
    };
    // A member.
    (@members [$view:tt $impl:tt $fn:tt $given:tt {$($field:tt)*} {$($shown:tt)*}]
        $(#[$meta:meta])* $name:ident: $Type:ty $([$($schema:tt)*])? = $value:expr;
        $($rest:tt)*) => {
        views! { @members [$view $impl $fn $given
            {$($field)* $(#[$meta])* $(#[schema($($schema)*)])? pub $name: $Type,}
            {$($shown)* $name: $value,}] $($rest)* }
    };
    (@members [[$(#[$meta:meta])* $vis:vis struct $View:ident as $Name:ident]
        [$($impl:tt)*] [$($fn:tt)*] [$($given:tt)*] {$($field:tt)*} {$($shown:tt)*}]) => {
        $(#[$meta])*
        #[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
        #[schema(as = $Name)]
        $vis struct $View {
            $($field)*
        }

        $($impl)* {
            $($fn)* {
                $($given)*
                Self {
                    $($shown)*
                }
            }
        }
    };
}

pub(crate) use views;
