//! The rows that requests in one transaction share, and what they change of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::{
    commands::prelude::*,
    webhooks::NewEvent,
    wire::{
        charges::ChargeView, checkouts::CheckoutView, customers::CustomerView,
        inventory::InventoryView, orders::OrderView, payment_intents::PaymentIntentView,
        payment_methods::PaymentMethodView, refunds::RefundView, setup_intents::SetupIntentView,
    },
};

/// A row that a verb needs. Tables are locked in the order of this list, and the ids of each in
/// theirs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowId {
    /// A checkout, with its steps.
    Checkout(CheckoutId),
    /// A payment intent.
    Intent(PaymentIntentId),
    /// A setup intent.
    Setup(SetupIntentId),
    /// A charge, with what is unfinished about it.
    Charge(ChargeId),
    /// An order, with what is unfinished about it.
    Order(OrderId),
    /// The order with this `client_order_id`, as it is, without a lock.
    OrderNamed(String),
    /// A refund.
    Refund(RefundId),
    /// A payment method, with what is unfinished about a new one.
    Method(PaymentMethodId),
    /// A payment method that pays. A customer's stays as it is, so such payments share its lock. A
    /// new one pays once, and is locked as by [`RowId::Method`].
    MethodToPay(PaymentMethodId),
    /// A customer.
    Customer(CustomerId),
    /// A customer as they are, without a lock.
    CustomerSeen(CustomerId),
    /// How many methods a customer has; to be named with [`RowId::Customer`].
    MethodsOf(CustomerId),
    /// The level of a stock-keeping unit.
    Level(String),
}

/// The account and the id of a row.
pub type RowName = (AccountId, RowId);

impl RowId {
    /// The lock that its row is read with. `None`: it is read without one, or under another's.
    pub(crate) fn lock(&self) -> Option<Self> {
        match self {
            Self::MethodToPay(id) => Some(Self::Method(*id)),
            Self::OrderNamed(_) | Self::CustomerSeen(_) | Self::MethodsOf(_) => None,
            Self::Checkout(_)
            | Self::Intent(_)
            | Self::Setup(_)
            | Self::Charge(_)
            | Self::Order(_)
            | Self::Refund(_)
            | Self::Method(_)
            | Self::Customer(_)
            | Self::Level(_) => Some(self.clone()),
        }
    }
}

/// A kind of object that verbs read, change and make.
pub trait Noun: Clone + Sized {
    /// What names one of them.
    type Id: Clone + Ord;
    /// Its row.
    const ROW: fn(Self::Id) -> RowId;
    /// As clients see it in events.
    type View: for<'a> From<&'a Self> + Serialize;

    /// The id of this one.
    fn id(&self) -> Self::Id;
    /// How often it was changed, and once for its creation.
    fn version(&self) -> i64;
    /// The same, to change it.
    fn version_mut(&mut self) -> &mut i64;
    /// Those among `tables`.
    fn table(tables: &Tables) -> &RowTable<Self>;
    /// Those among `tables`, to change them.
    fn table_mut(tables: &mut Tables) -> &mut RowTable<Self>;
}

/// Makes [`Tables`], and a [`Noun`] of each type in them: `orders: Order in Order by id: OrderId as
/// OrderView;` makes the member `orders`, and of `Order` a noun that `RowId::Order` names by its
/// `id` and that events show as an `OrderView`.
macro_rules! tables {
    ($($table:ident: $noun:ident in $row:ident by $name:ident: $id:ident as $view:ident;)+) => {
        /// Objects of each kind.
        #[derive(Debug, Default, Clone)]
        pub struct Tables {
            $(pub(crate) $table: RowTable<$noun>,)+
        }

        impl Tables {
            /// Whether they hold anything.
            fn is_any(&self) -> bool {
                $(!self.$table.0.is_empty())||+
            }

            /// Takes over what `changes` hold.
            pub(crate) fn apply(&mut self, changes: Self) {
                $(self.$table.apply(changes.$table);)+
            }
        }

        $(impl Noun for $noun {
            type Id = $id;
            type View = $view;
            const ROW: fn($id) -> RowId = RowId::$row;

            fn id(&self) -> $id {
                self.$name.to_owned()
            }

            fn version(&self) -> i64 {
                self.version
            }

            fn version_mut(&mut self) -> &mut i64 {
                &mut self.version
            }

            fn table(tables: &Tables) -> &RowTable<Self> {
                &tables.$table
            }

            fn table_mut(tables: &mut Tables) -> &mut RowTable<Self> {
                &mut tables.$table
            }
        })+
    };
}

tables! {
    checkouts: Checkout in Checkout by id: CheckoutId as CheckoutView;
    intents: PaymentIntent in Intent by id: PaymentIntentId as PaymentIntentView;
    charges: Charge in Charge by id: ChargeId as ChargeView;
    orders: Order in Order by id: OrderId as OrderView;
    refunds: Refund in Refund by id: RefundId as RefundView;
    setups: SetupIntent in Setup by id: SetupIntentId as SetupIntentView;
    methods: PaymentMethod in Method by id: PaymentMethodId as PaymentMethodView;
    customers: Customer in Customer by id: CustomerId as CustomerView;
    levels: Inventory in Level by sku: String as InventoryView;
}

/// Objects of one kind, by account and id.
#[derive(Debug, Clone)]
pub struct RowTable<N: Noun>(BTreeMap<(AccountId, N::Id), Row<N>>);

impl<N: Noun> Default for RowTable<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// An object, and what is to be written of it.
#[derive(Debug, Clone)]
pub(crate) struct Row<N> {
    /// As it is now; `None` if it is to be deleted.
    pub(crate) is: Option<N>,
    /// The version that was read; `None` for an object that is to be inserted.
    pub(crate) based_on: Option<i64>,
    /// Whether it differs from what was read.
    pub(crate) is_changed: bool,
}

impl<N: Noun> RowTable<N> {
    pub(crate) fn get(&self, account: AccountId, id: N::Id) -> Option<&Row<N>> {
        self.0.get(&(account, id))
    }

    pub(crate) fn set(&mut self, account: AccountId, id: N::Id, row: Row<N>) {
        self.0.insert((account, id), row);
    }

    /// Holds rows as they were read.
    pub(crate) fn hold(&mut self, read: Vec<(AccountId, N)>) {
        for (account, object) in read {
            let (id, based_on) = (object.id(), Some(object.version()));
            let row = Row {
                is: Some(object),
                based_on,
                is_changed: false,
            };
            self.0.insert((account, id), row);
        }
    }

    /// Later values replace earlier ones. An object that was made and deleted is forgotten.
    fn apply(&mut self, changes: Self) {
        for (name, row) in changes.0 {
            if row.is.is_none() && row.based_on.is_none() {
                self.0.remove(&name);
            } else {
                self.0.insert(name, row);
            }
        }
    }

    /// All of an account's objects.
    pub(crate) fn of(&self, account: AccountId) -> impl Iterator<Item = &N> {
        let rows = self
            .0
            .iter()
            .filter(move |((owner, _), _)| *owner == account);
        rows.filter_map(|(_, row)| row.is.as_ref())
    }

    /// The objects that are to be inserted.
    pub(crate) fn added(&self) -> Vec<(AccountId, &N)> {
        let new = self.0.iter().filter(|(_, row)| row.based_on.is_none());
        new.filter_map(|((account, _), row)| Some((*account, row.is.as_ref()?)))
            .collect()
    }

    /// The objects that are to be updated, with the versions that were read.
    pub(crate) fn changed(&self) -> Vec<(AccountId, &N, i64)> {
        let changed = self.0.iter().filter(|(_, row)| row.is_changed);
        changed
            .filter_map(|((account, _), row)| Some((*account, row.is.as_ref()?, row.based_on?)))
            .collect()
    }

    /// The objects that are to be deleted.
    pub(crate) fn gone(&self) -> Vec<(AccountId, N::Id)> {
        let gone = self.0.iter().filter(|(_, row)| row.is.is_none());
        gone.map(|(name, _)| name.clone()).collect()
    }
}

/// What the requests of one transaction have read, with what they have changed of it.
#[derive(Debug, Default)]
pub struct Rows {
    pub(crate) tables: Tables,
    pub(crate) orders_by_name: HashMap<(AccountId, String), Order>,
    pub(crate) customers_seen: HashMap<(AccountId, CustomerId), Customer>,
    /// How many methods customers have.
    pub(crate) methods_of: HashMap<(AccountId, CustomerId), i64>,
    pub(crate) open_work: HashMap<RowName, OpenWork>,
    /// What was looked for, whether it is there or not.
    pub(crate) read: HashSet<RowName>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) begun: Vec<Operation>,
    pub(crate) answered: Vec<(AccountId, Uuid, Answer)>,
}

/// What one request changes.
#[derive(Debug, Default)]
pub struct Changes {
    pub(crate) tables: Tables,
    pub(crate) events: Vec<NewEvent>,
    /// What a processor across a network is to be asked.
    pub(crate) begun: Vec<Operation>,
    /// What it has answered.
    pub(crate) answered: Vec<(AccountId, Uuid, Answer)>,
}

impl Changes {
    /// `None` where nothing is changed.
    pub(crate) fn if_any(self) -> Option<Self> {
        let Self {
            tables,
            events,
            begun,
            answered,
        } = &self;
        let is_any =
            tables.is_any() || !events.is_empty() || !begun.is_empty() || !answered.is_empty();
        is_any.then_some(self)
    }
}

impl Rows {
    /// Whether anything was read that another transaction may make meanwhile: what is not there has
    /// no lock.
    pub(crate) fn has_looked(&self) -> bool {
        let mut read = self.read.iter();
        read.any(|(_, row)| matches!(row, RowId::OrderNamed(_) | RowId::Level(_)))
    }

    /// Counts what `changed` methods mean for their customers.
    pub(crate) fn count_methods(&mut self, changed: &RowTable<PaymentMethod>) {
        for ((account, id), row) in &changed.0 {
            let customer =
                |method: Option<&PaymentMethod>| method.and_then(PaymentMethod::customer);
            let before = customer(self.get::<PaymentMethod>(*account, *id));
            let after = customer(row.is.as_ref());
            if before == after {
                continue;
            }
            for (customer, more) in [(before, -1), (after, 1)] {
                let counted = customer.and_then(|id| self.methods_of.get_mut(&(*account, id)));
                if let Some(count) = counted {
                    *count += more;
                }
            }
        }
    }

    /// The account's object with this id, as the requests before have left it.
    pub fn get<N: Noun>(&self, account: AccountId, id: N::Id) -> Option<&N> {
        N::table(&self.tables).get(account, id)?.is.as_ref()
    }
}
