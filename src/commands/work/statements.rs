//! The statements of a transaction: one for each table, for however many requests.

use sqlx::PgConnection;

use super::rows::{Changes, RowId, RowName, Rows};
use crate::{
    domain::{
        charge::ChargeStatus,
        ids::{
            AccountId, ChargeId, CustomerId, OrderId, PaymentIntentId, PaymentMethodId, RefundId,
            SetupIntentId,
        },
        payment_method::PaymentMethod,
    },
    idempotency,
    store::{self, operations::OpenWork},
    webhooks,
};

/// A processor has not answered about it.
const ASKED: OpenWork = OpenWork {
    operation: true,
    checkout: false,
};

impl idempotency::Rows for Rows {
    type Name = RowName;
    type Changes = Changes;

    async fn read(
        &mut self,
        tx: &mut PgConnection,
        names: Vec<RowName>,
    ) -> Result<(), sqlx::Error> {
        self.read_all(tx, names).await
    }

    fn lock((account, id): &RowName) -> Option<RowName> {
        id.lock().map(|id| (*account, id))
    }

    fn apply(&mut self, changes: Changes) {
        self.count_methods(&changes.tables.methods);
        self.tables.apply(changes.tables);
        self.events.extend(changes.events);
        self.begun.extend(changes.begun);
        self.answered.extend(changes.answered);
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        self.write_all(tx).await
    }
}

impl Rows {
    /// Reads those of `names` that were not read. `false`: there was none.
    pub(super) async fn read_more(
        &mut self,
        tx: &mut PgConnection,
        names: impl Iterator<Item = RowName>,
    ) -> Result<bool, sqlx::Error> {
        let mut more: Vec<RowName> = names.filter(|name| !self.read.contains(name)).collect();
        more.sort_unstable();
        more.dedup();
        let is_more = !more.is_empty();
        if is_more {
            self.read_all(tx, more).await?;
        }
        Ok(is_more)
    }

    /// Locks rows and reads them, in the order of [`RowId`]. A row that is not there is no error.
    async fn read_all(
        &mut self,
        tx: &mut PgConnection,
        names: Vec<RowName>,
    ) -> Result<(), sqlx::Error> {
        let mut named = NamedRows::of(&names);
        let tables = &mut self.tables;
        let intents = store::payment_intents::lock_all(tx, sorted(&mut named.intents)).await?;
        tables.intents.hold(intents);
        let setups = store::setup_intents::lock_all(tx, sorted(&mut named.setups)).await?;
        tables.setups.hold(setups);
        let charges = store::charges::lock_all(tx, sorted(&mut named.charges)).await?;
        // A pending charge has an operation.
        let (pending, settled): (Vec<_>, Vec<_>) = charges
            .iter()
            .map(|(account, charge)| ((*account, charge.id), charge.status))
            .partition(|(_, status)| *status == ChargeStatus::Pending);
        for ((account, id), _) in pending {
            self.open_work.insert((account, RowId::Charge(id)), ASKED);
        }
        if !settled.is_empty() {
            // In a statement of its own: the one that waited for the locks has an old snapshot.
            let settled: Vec<_> = settled.into_iter().map(|(id, _)| id).collect();
            let open = store::charges::open_work(tx, &settled).await?;
            let open = open.into_iter();
            let open = open.map(|((account, id), open)| ((account, RowId::Charge(id)), open));
            self.open_work.extend(open);
        }
        tables.charges.hold(charges);
        let orders = store::orders::lock_all(tx, sorted(&mut named.orders)).await?;
        if !orders.is_empty() {
            let open = store::orders::open_work(tx, &named.orders).await?;
            let open = open.into_iter();
            let open = open.map(|((account, id), open)| ((account, RowId::Order(id)), open));
            self.open_work.extend(open);
        }
        tables.orders.hold(orders);
        if !named.order_names.is_empty() {
            for (account, order) in store::orders::named(tx, &named.order_names).await? {
                if let Some(name) = order.client_order_id.clone() {
                    self.orders_by_name.insert((account, name), order);
                }
            }
        }
        let refunds = store::refunds::lock_all(tx, sorted(&mut named.refunds)).await?;
        tables.refunds.hold(refunds);
        self.read_methods(tx, &mut named).await?;
        self.read_customers(tx, &mut named).await?;
        let levels = store::inventory::lock_all(tx, sorted(&mut named.levels)).await?;
        self.tables.levels.hold(levels);
        self.read.extend(names);
        Ok(())
    }

    /// Locks payment methods, or shares the locks of those that pay and stay as they are.
    async fn read_methods(
        &mut self,
        tx: &mut PgConnection,
        named: &mut NamedRows,
    ) -> Result<(), sqlx::Error> {
        let NamedRows {
            methods, paying, ..
        } = named;
        let is_locked = |(account, id): &(AccountId, PaymentMethodId)| {
            methods.contains(&(*account, *id))
                || self.read.contains(&(*account, RowId::Method(*id)))
        };
        paying.retain(|id| !is_locked(id));
        let mut found = Vec::new();
        if !paying.is_empty() {
            found = store::payment_methods::share_all(tx, sorted(paying)).await?;
            paying.retain(|id| !is_among(&found, *id));
        }
        if !paying.is_empty() {
            // One that was detached while its lock was waited for stays locked, shared with all
            // that waited, so none of them may ask for more.
            found.extend(store::payment_methods::ended(tx, paying).await?);
            paying.retain(|id| !is_among(&found, *id));
            methods.append(paying);
        }
        found.extend(store::payment_methods::lock_all(tx, sorted(methods)).await?);
        let new = found.iter().filter(|(_, method)| method.may_be_held());
        let new: Vec<_> = new.map(|(account, method)| (*account, method.id)).collect();
        if !new.is_empty() {
            let held = store::charges::pending_with(tx, &new).await?.into_iter();
            let held = held.map(|(account, id)| ((account, RowId::Method(id)), ASKED));
            self.open_work.extend(held);
        }
        self.tables.methods.hold(found);
        Ok(())
    }

    /// Locks customers, counts their methods, and looks at others.
    async fn read_customers(
        &mut self,
        tx: &mut PgConnection,
        named: &mut NamedRows,
    ) -> Result<(), sqlx::Error> {
        let customers = store::customers::lock_all(tx, sorted(&mut named.customers)).await?;
        self.tables.customers.hold(customers);
        if !named.seen.is_empty() {
            let seen = store::customers::look_all(tx, &named.seen).await?;
            let seen = seen.into_iter().map(|(account, of)| ((account, of.id), of));
            self.customers_seen.extend(seen);
        }
        if !named.counted.is_empty() {
            let counts = store::payment_methods::count_all(tx, &named.counted).await?;
            let counts = counts.into_iter();
            let counts = counts.map(|(account, id, count)| ((account, id), count));
            self.methods_of.extend(counts);
        }
        Ok(())
    }

    /// Applies changes, and writes them.
    pub(super) async fn write_with(
        mut self,
        tx: &mut PgConnection,
        changes: Changes,
    ) -> Result<(), sqlx::Error> {
        idempotency::Rows::apply(&mut self, changes);
        self.write_all(tx).await
    }

    /// Writes all that was applied. What others refer to is inserted first, and deleted last.
    async fn write_all(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        if !self.answered.is_empty() {
            store::operations::complete_all(tx, &self.answered).await?;
        }
        self.insert_all(tx).await?;
        self.update_all(tx).await?;
        if !self.begun.is_empty() {
            store::operations::insert_all(tx, &self.begun).await?;
        }
        let tables = &self.tables;
        if let Some(gone) = any(tables.refunds.gone()) {
            store::refunds::delete_all(tx, &gone).await?;
        }
        if let Some(gone) = any(tables.charges.gone()) {
            store::charges::delete_all(tx, &gone).await?;
        }
        if let Some(gone) = any(tables.intents.gone()) {
            store::payment_intents::delete_all(tx, &gone).await?;
        }
        if let Some(gone) = any(tables.methods.gone()) {
            store::payment_methods::delete_all(tx, &gone).await?;
        }
        if !self.events.is_empty() {
            webhooks::emit(tx, &self.events).await?;
        }
        Ok(())
    }

    async fn insert_all(&self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tables = &self.tables;
        if let Some(new) = any(tables.customers.added()) {
            store::customers::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.methods.added()) {
            store::payment_methods::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.intents.added()) {
            store::payment_intents::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.setups.added()) {
            store::setup_intents::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.orders.added()) {
            store::orders::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.charges.added()) {
            store::charges::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.refunds.added()) {
            store::refunds::insert_all(tx, &new).await?;
        }
        if let Some(new) = any(tables.levels.added()) {
            store::inventory::insert_all(tx, &new).await?;
        }
        Ok(())
    }

    async fn update_all(&self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        let tables = &self.tables;
        if let Some(changed) = any(tables.intents.changed()) {
            store::payment_intents::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.setups.changed()) {
            store::setup_intents::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.charges.changed()) {
            store::charges::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.orders.changed()) {
            store::orders::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.refunds.changed()) {
            store::refunds::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.methods.changed()) {
            store::payment_methods::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.customers.changed()) {
            store::customers::update_all(tx, &changed).await?;
        }
        if let Some(changed) = any(tables.levels.changed()) {
            store::inventory::update_all(tx, &changed).await?;
        }
        Ok(())
    }
}

/// The rows that are named, by their tables.
#[derive(Default)]
struct NamedRows {
    intents: Vec<(AccountId, PaymentIntentId)>,
    setups: Vec<(AccountId, SetupIntentId)>,
    charges: Vec<(AccountId, ChargeId)>,
    orders: Vec<(AccountId, OrderId)>,
    order_names: Vec<(AccountId, String)>,
    refunds: Vec<(AccountId, RefundId)>,
    methods: Vec<(AccountId, PaymentMethodId)>,
    paying: Vec<(AccountId, PaymentMethodId)>,
    customers: Vec<(AccountId, CustomerId)>,
    seen: Vec<(AccountId, CustomerId)>,
    counted: Vec<(AccountId, CustomerId)>,
    levels: Vec<(AccountId, String)>,
}

impl NamedRows {
    fn of(names: &[RowName]) -> Self {
        let mut named = Self::default();
        for (account, row) in names {
            let account = *account;
            match row {
                RowId::Intent(id) => named.intents.push((account, *id)),
                RowId::Setup(id) => named.setups.push((account, *id)),
                RowId::Charge(id) => named.charges.push((account, *id)),
                RowId::Order(id) => named.orders.push((account, *id)),
                RowId::OrderNamed(name) => named.order_names.push((account, name.clone())),
                RowId::Refund(id) => named.refunds.push((account, *id)),
                RowId::Method(id) => named.methods.push((account, *id)),
                RowId::MethodToPay(id) => named.paying.push((account, *id)),
                RowId::Customer(id) => named.customers.push((account, *id)),
                RowId::CustomerSeen(id) => named.seen.push((account, *id)),
                RowId::MethodsOf(id) => named.counted.push((account, *id)),
                RowId::Level(sku) => named.levels.push((account, sku.clone())),
            }
        }
        named
    }
}

/// Ids in the order in which every transaction locks them.
fn sorted<Id: Ord>(ids: &mut Vec<(AccountId, Id)>) -> &[(AccountId, Id)] {
    ids.sort_unstable();
    ids
}

fn is_among(found: &[(AccountId, PaymentMethod)], name: (AccountId, PaymentMethodId)) -> bool {
    let mut found = found.iter();
    found.any(|(account, method)| (*account, method.id) == name)
}

fn any<T>(rows: Vec<T>) -> Option<Vec<T>> {
    Some(rows).filter(|rows| !rows.is_empty())
}
