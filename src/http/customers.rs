//! `/customers`

use charge_once_strict_params::{
    Kept,
    pages::{Cursor, LIMIT_DEFAULT, Limit, Listed, Page},
};

use super::prelude::*;
use crate::{
    commands::{CreateCustomer, Update},
    domain::customer::{Customer, CustomersWith},
    wire::{
        customers::{
            AnyCustomerView, CreateCustomerParams, CustomerQuery, CustomerView,
            DeletedCustomerView, UpdateCustomerParams,
        },
        list::SearchResult,
        people::PERSON_EMAIL_MAX_CHARS,
    },
    work::{DeleteCustomer, delete_customer, expansions::Shown},
};

endpoints! { "Customers", CustomerView;
    /// Create a customer
    ///
    /// Several customers may have the same e-mail address.
    create "createCustomer": post "/customers" (CreateCustomerParams) => 201 "The customer.",
        Mutating [
            ParameterMissing, PaymentMethodUnexpectedState, CardDeclined, ExpiredCard,
            IncorrectCvc, ProcessingError, ResourceMissing,
        ],
        CreateCustomer;

    /// Update a customer
    ///
    /// What the request doesn't mention stays; an empty value unsets.
    update "updateCustomer": post "/customers/{id}" of id "The customer's id: cus_…"
        (UpdateCustomerParams) => 200 "The customer.", Mutating [ParameterMissing, ResourceMissing],
        |params| Update::<Customer> { id, params };

    /// Retrieve a customer
    ///
    /// Of one who was deleted, only the id is left.
    one retrieve "retrieveCustomer": "/customers/{id}" of CustomerId "The customer's id: cus_…"
        (ExpandCustomer "`invoice_settings.default_payment_method` shows the whole payment method.") => AnyCustomerView "The customer, or what is left.",
        store::customers::find;

    /// List customers
    ///
    /// Without those who were deleted.
    page list "listCustomers": "/customers" of CustomerId (ListCustomersQuery) [],
        query => query.email.map(CustomersWith::email),
        store::customers::list;
}

errors! { SearchCustomersErrors: Reading [ParameterMissing] }

/// Search customers
///
/// By e-mail address, and perhaps name. Also finds what was written right before.
#[utoipa::path(
    get, path = "/customers/search", tag = "Customers", operation_id = "searchCustomers",
    params(SearchCustomersQuery),
    responses(
        (
            status = 200, description = "A page, newest first.",
            body = SearchResult<CustomerView>,
        ),
        SearchCustomersErrors,
    ),
)]
pub async fn search(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params::<SearchCustomersQuery>(&request)?;
    let page = Page {
        limit: query.limit,
        cursor: query
            .page
            .map_or(Cursor::Start, |id| Cursor::StartingAfter(id.0)),
        created_from: None,
        created_before: None,
    };
    let (asked, expand) = (Some(query.query), query.expand);
    let found = app.snapshot(caller.account, move |connection| {
        Box::pin(async move {
            let found = store::customers::list(&mut *connection, caller.account, &page, asked);
            let Listed { data, has_more } = found.await?;
            let last = data.last().filter(|_| has_more);
            Ok(SearchResult {
                object: "search_result",
                has_more,
                next_page: last.map(|customer| customer.id.to_string()),
                url: format!("{}/customers/search", caller.dialect.prefix()),
                data: Customer::views(connection, caller, &data, &expand).await?,
            })
        })
    });
    Ok(HttpResponse::Ok().json(found.await?))
}

parameters! {
    /// Which customers are searched for, and how the page is shown.
    struct SearchCustomersQuery {
        /// Objects on a page.
        limit: Limit<LIMIT_DEFAULT>,
        /// The next_page of the page before.
        page: Kept<CustomerId>,
        /// `data.invoice_settings.default_payment_method` shows the whole payment method in each.
        expand: Expand<ExpandCustomers>,
        /// Their whole e-mail address, and perhaps name, in this case.
        query: CustomerQuery,
    }
}

/// Delete a customer
///
/// Detaches all payment methods, for good. Charges and intents stay, and keep the id. An
/// idempotency key is optional: a retry with it gets the first answer. Without one, deleting twice
/// does nothing more, and 404 on a retry says that it is done.
#[utoipa::path(
    delete, path = "/customers/{id}", tag = "Customers", operation_id = "deleteCustomer",
    params(("id" = String, Path, description = "The customer's id: cus_…"), DeletionHeaders),
    responses(
        (status = 200, description = "The customer is gone.", body = DeletedCustomerView),
        DeletionErrors,
    ),
)]
pub async fn delete(app: Data<App>, request: HttpRequest, deletion: Deletion) -> HttpResult {
    let caller = match deletion {
        Deletion::WithKey(with_key) => {
            let by = |request, origin, params| {
                app.idempotency
                    .run(request, DeleteCustomer { origin, params })
            };
            return run(&app, *with_key, by).await;
        }
        Deletion::WithoutKey(caller) => caller,
    };
    no_query(&request)?;
    let id = path_id::<CustomerId>(&request)?;
    let origin = caller.origin_without_key(&request)?;
    let deleted = app.write(caller.account, move |tx| {
        Box::pin(async move { delete_customer(&origin, tx, id).await })
    });
    if !deleted.await? {
        return Err(reads::missing_id(caller, id));
    }
    app.wake_webhooks.notify_one();
    Ok(HttpResponse::Ok().json(DeletedCustomerView::of(id)))
}

parameters! {
    /// Which customers are listed, and how.
    struct ListCustomersQuery {
        /// Only customers with exactly this e-mail address, in this case.
        email: Option<Text<PERSON_EMAIL_MAX_CHARS>>,
        /// `data.invoice_settings.default_payment_method` shows the whole payment method in each.
        expand: Expand<ExpandCustomers>,
    }
}
