//! `/test/faults`: faults for programs that can't ask for any, on servers with `FAULTS`.

use super::{faults::must_be_allowed, prelude::*, request::Tester};
use crate::{
    wire::fault_plans::{CreateFaultPlanParams, DeletedFaultPlanView, FaultPlanView},
    work::{CreateFaultPlan, DeleteFaultPlan},
};

/// Plan faults
///
/// From now on, the fault acts on requests of the account without the header `Fault`, or on its
/// webhooks. Use it for a program that you can't change. All replicas count together. Requests to
/// `/test` are left alone.
#[utoipa::path(
    post, path = "/test/faults", tag = "Test", operation_id = "createFaultPlan",
    params(MutatingHeaders),
    request_body = CreateFaultPlanParams,
    responses(
        (status = 201, description = "The plan.", body = FaultPlanView),
        MutatingErrors,
    ),
)]
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    must_be_allowed(request.testing.is_allowed)?;
    run(&app, request, |request, origin, params| {
        let command = CreateFaultPlan {
            origin,
            params,
            routes: app.known_routes,
        };
        app.idempotency.run(request, command)
    })
    .await
}

/// List fault plans
///
/// All of the account's, the oldest first, with what they have done.
#[utoipa::path(
    get, path = "/test/faults", tag = "Test", operation_id = "listFaultPlans",
    responses(
        (status = 200, description = "At most 32.", body = List<FaultPlanView>),
        ReadErrors,
    ),
)]
pub async fn list(app: Data<App>, Tester(caller): Tester, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let account = caller.account;
    let listed = app.read(account, move |connection| {
        Box::pin(store::fault_plans::list(connection, account))
    });
    let plans = listed.await?;
    let data = plans.iter().map(FaultPlanView::from).collect();
    let url = format!("{}/test/faults", caller.dialect.prefix());
    Ok(HttpResponse::Ok().json(List::new(data, false, url)))
}

/// Delete a fault plan
///
/// Its fault acts no more. An idempotency key is optional: a retry with it gets the first answer.
#[utoipa::path(
    delete, path = "/test/faults/{id}", tag = "Test", operation_id = "deleteFaultPlan",
    params(("id" = String, Path, description = "The plan's id: flt_…"), DeletionHeaders),
    responses(
        (status = 200, description = "It is gone.", body = DeletedFaultPlanView),
        DeletionErrors,
    ),
)]
pub async fn delete(app: Data<App>, request: HttpRequest, deletion: Deletion) -> HttpResult {
    let caller = match deletion {
        Deletion::WithKey(with_key) => {
            let by = |request, origin, params| {
                app.idempotency
                    .run(request, DeleteFaultPlan { origin, params })
            };
            return run(&app, *with_key, by).await;
        }
        Deletion::WithoutKey(caller) => caller,
    };
    no_query(&request)?;
    let (account, id) = (caller.account, path_id::<FaultPlanId>(&request)?);
    let deleted = app.write(account, move |tx| {
        Box::pin(store::fault_plans::delete(tx, account, id))
    });
    match deleted.await? {
        true => Ok(HttpResponse::Ok().json(DeletedFaultPlanView::of(id.to_string()))),
        false => Err(reads::missing_id(caller, id)),
    }
}
