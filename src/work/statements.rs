//! The statements of a transaction: one for each table, for however many requests.

use sqlx::PgConnection;

use crate::{
    commands::{Changes, RowId, RowName, Rows},
    domain::{
        charge::ChargeStatus,
        ids::{AccountId, PaymentMethodId},
        operation::OpenWork,
        payment_method::PaymentMethod,
    },
    idempotency, store, webhooks,
};

/// A processor has not answered about it.
const ASKED: OpenWork = OpenWork {
    operation: true,
    checkout: false,
};

/// The ids of one kind among names, in their order: `ids!(names, Charge)` is those of
/// `RowId::Charge`.
macro_rules! ids {
    ($names:ident, $kind:ident) => {{
        let of_kind = |(account, row): &RowName| {
            let RowId::$kind(id) = row else { return None };
            Some((*account, id.to_owned()))
        };
        $names.iter().filter_map(of_kind).collect::<Vec<_>>()
    }};
}

impl idempotency::Rows for Rows {
    type Name = RowName;
    type Changes = Changes;

    /// Locks rows and reads them, in the order of [`RowId`]. A row that is not there is no error.
    async fn read(
        &mut self,
        tx: &mut PgConnection,
        mut names: Vec<RowName>,
    ) -> Result<(), sqlx::Error> {
        names.sort_unstable();
        let tables = &mut self.tables;
        let checkouts = store::checkouts::lock_all(tx, &ids!(names, Checkout)).await?;
        tables.checkouts.hold(checkouts);
        let intents = store::payment_intents::lock_all(tx, &ids!(names, Intent)).await?;
        tables.intents.hold(intents);
        let setups = store::setup_intents::lock_all(tx, &ids!(names, Setup)).await?;
        tables.setups.hold(setups);
        let charges = store::charges::lock_all(tx, &ids!(names, Charge)).await?;
        // A pending charge has an operation.
        let (pending, settled): (Vec<_>, Vec<_>) = charges
            .iter()
            .map(|(account, charge)| ((*account, charge.id), charge.status))
            .partition(|(_, status)| *status == ChargeStatus::Pending);
        for ((account, id), _) in pending {
            self.open_work.insert((account, RowId::Charge(id)), ASKED);
        }
        // In a statement of its own: the one that waited for the locks has an old snapshot.
        let settled: Vec<_> = settled.into_iter().map(|(id, _)| id).collect();
        for ((account, id), open) in store::charges::open_work(tx, &settled).await? {
            self.open_work.insert((account, RowId::Charge(id)), open);
        }
        tables.charges.hold(charges);
        let orders = store::orders::lock_all(tx, &ids!(names, Order)).await?;
        let locked = orders.iter().map(|(account, one)| (*account, one.id));
        let locked: Vec<_> = locked.collect();
        for ((account, id), open) in store::orders::open_work(tx, &locked).await? {
            self.open_work.insert((account, RowId::Order(id)), open);
        }
        tables.orders.hold(orders);
        for (account, order) in store::orders::named(tx, &ids!(names, OrderNamed)).await? {
            if let Some(name) = order.terms.client_order_id.clone() {
                self.orders_by_name.insert((account, name), order);
            }
        }
        let refunds = store::refunds::lock_all(tx, &ids!(names, Refund)).await?;
        tables.refunds.hold(refunds);
        self.read_methods(tx, &names).await?;
        let customers = store::customers::lock_all(tx, &ids!(names, Customer)).await?;
        self.tables.customers.hold(customers);
        for (account, of) in store::customers::look_all(tx, &ids!(names, CustomerSeen)).await? {
            self.customers_seen.insert((account, of.id), of);
        }
        let counted = ids!(names, MethodsOf);
        for (account, id, count) in store::payment_methods::count_all(tx, &counted).await? {
            self.methods_of.insert((account, id), count);
        }
        let levels = store::inventory::lock_all(tx, &ids!(names, Level)).await?;
        self.tables.levels.hold(levels);
        self.read.extend(names);
        Ok(())
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

    /// Writes all that was applied. What others refer to is inserted first, and deleted last.
    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        if !self.answered.is_empty() {
            store::operations::complete_all(tx, &self.answered).await?;
        }
        let tables = &self.tables;
        store::customers::insert_all(tx, &tables.customers.added()).await?;
        store::payment_methods::insert_all(tx, &tables.methods.added()).await?;
        store::payment_intents::insert_all(tx, &tables.intents.added()).await?;
        store::setup_intents::insert_all(tx, &tables.setups.added()).await?;
        store::orders::insert_all(tx, &tables.orders.added()).await?;
        store::charges::insert_all(tx, &tables.charges.added()).await?;
        store::refunds::insert_all(tx, &tables.refunds.added()).await?;
        store::checkouts::insert_all(tx, &tables.checkouts.added()).await?;
        store::inventory::insert_all(tx, &tables.levels.added()).await?;
        store::payment_intents::update_all(tx, &tables.intents.changed()).await?;
        store::setup_intents::update_all(tx, &tables.setups.changed()).await?;
        store::charges::update_all(tx, &tables.charges.changed()).await?;
        store::orders::update_all(tx, &tables.orders.changed()).await?;
        store::refunds::update_all(tx, &tables.refunds.changed()).await?;
        store::payment_methods::update_all(tx, &tables.methods.changed()).await?;
        store::customers::update_all(tx, &tables.customers.changed()).await?;
        store::checkouts::update_all(tx, &tables.checkouts.changed()).await?;
        store::inventory::update_all(tx, &tables.levels.changed()).await?;
        let changed = tables.checkouts.changed().into_iter();
        let changed = changed.map(|(account, checkout, _)| (account, checkout));
        let checkouts = tables.checkouts.added().into_iter().chain(changed);
        store::checkouts::put_steps(tx, checkouts).await?;
        if !self.begun.is_empty() {
            store::operations::insert_all(tx, &self.begun).await?;
        }
        store::refunds::delete_all(tx, &tables.refunds.gone()).await?;
        store::charges::delete_all(tx, &tables.charges.gone()).await?;
        store::payment_intents::delete_all(tx, &tables.intents.gone()).await?;
        store::payment_methods::delete_all(tx, &tables.methods.gone()).await?;
        if !self.events.is_empty() {
            webhooks::emit(tx, &self.events).await?;
        }
        Ok(())
    }
}

impl Rows {
    /// Locks payment methods, or shares the locks of those that pay and stay as they are.
    async fn read_methods(
        &mut self,
        tx: &mut PgConnection,
        names: &[RowName],
    ) -> Result<(), sqlx::Error> {
        let (mut methods, mut paying) = (ids!(names, Method), ids!(names, MethodToPay));
        paying.retain(|(account, id)| {
            let is_locked = self.read.contains(&(*account, RowId::Method(*id)));
            !is_locked && !methods.contains(&(*account, *id))
        });
        let mut found = store::payment_methods::share_all(tx, &paying).await?;
        paying.retain(|id| !is_among(&found, *id));
        // One that was detached while its lock was waited for stays locked, shared with all that
        // waited, so none of them may ask for more.
        found.extend(store::payment_methods::ended(tx, &paying).await?);
        paying.retain(|id| !is_among(&found, *id));
        methods.append(&mut paying);
        methods.sort_unstable();
        found.extend(store::payment_methods::lock_all(tx, &methods).await?);
        let new = found.iter().filter(|(_, method)| method.may_be_held());
        let new: Vec<_> = new.map(|(account, method)| (*account, method.id)).collect();
        for (account, id) in store::charges::pending_with(tx, &new).await? {
            self.open_work.insert((account, RowId::Method(id)), ASKED);
        }
        self.tables.methods.hold(found);
        Ok(())
    }

    /// Applies changes, and writes them.
    pub(super) async fn write_with(
        mut self,
        tx: &mut PgConnection,
        changes: Changes,
    ) -> Result<(), sqlx::Error> {
        idempotency::Rows::apply(&mut self, changes);
        idempotency::Rows::write(self, tx).await
    }
}

fn is_among(found: &[(AccountId, PaymentMethod)], name: (AccountId, PaymentMethodId)) -> bool {
    let mut found = found.iter();
    found.any(|(account, method)| (*account, method.id) == name)
}
