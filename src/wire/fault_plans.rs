//! Fault plans as clients send and see them.

use std::sync::LazyLock;

use charge_once_service::edge::{KnownRoute, KnownRoutes};

use super::{dialect::Dialect, prelude::*, webhook_endpoints::EnabledEvent};
use crate::domain::fault_plan::{EVENT, EVERY_REQUEST, FaultPlan, PLANS_MAX, PlannedFault};

/// Largest `first`, `every`, `seed` and `requests`.
const COUNT_MAX: i64 = 10_000;

/// Longest delay, in seconds.
const SECONDS_MAX: i64 = 30;

/// Default delay, in seconds.
const SECONDS: i64 = 2;

parameters! {
    /// Which faults act on which of the account's requests, or of its webhooks. Give `route` or
    /// `event`, and at most one of `first`, `every` and `percent`; without any, `first` is 1.
    pub struct CreateFaultPlanParams as "CreateFaultPlan" {
        /// Requests with a key, an assigned one too: `POST /refunds`, `/refunds/{id}`, or `*` for
        /// all.
        route: Option<Text<255>>,
        /// Webhooks: a type of event, or `*` for all.
        event: Option<EnabledEvent>,
        /// What happens. The first seven are those of the header `Fault`; the last four are of
        /// webhooks.
        fault: PlannedFault,
        /// How long `delay`, `webhook_late` and `webhook_out_of_order` wait. Default: 2.
        seconds: Option<Integer<0, SECONDS_MAX>>,
        /// It acts on the first N.
        first: Option<Integer<1, COUNT_MAX>>,
        /// It acts on every Nth: with 3, on the third, the sixth …
        every: Option<Integer<1, COUNT_MAX>>,
        /// The chance that it acts, in percent.
        percent: Option<Integer<1, 100>>,
        /// The same seed acts on the same requests each time. Default: 0.
        seed: Option<Integer<0, COUNT_MAX>>,
        /// It acts at most this often. Default: 10,000.
        requests: Option<Integer<1, COUNT_MAX>>,
    }
    example {"route": "POST /v1/refunds", "fault": "reply_lost", "first": 1}
}

/// The names of all faults, to find the one that was meant.
static NAMES: LazyLock<KnownRoutes> = LazyLock::new(|| {
    let names = PlannedFault::ALL.iter().map(|fault| KnownRoute {
        pattern: fault.as_str().to_owned(),
        methods: String::new(),
    });
    names.collect()
});

impl ValueKind for PlannedFault {
    type Value = Self;
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, Error> {
        let Some(text) = field.fields.text(field.name, usize::MAX)? else {
            return Ok(None);
        };
        let known = Self::parse(&text).map(Some);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|one| one.as_str()).collect();
            let nearest = NAMES.nearest(&text).map(|one| &one.pattern);
            let nearest = nearest.map(|name| format!(" The nearest is {name}."));
            let names = names.join(", ");
            field.invalid(format!(
                "Must be one of {names}.{}",
                nearest.unwrap_or_default()
            ))
        })
    }

    fn schema() -> RefOr<Schema> {
        let names = Self::ALL.iter().map(|one| one.as_str());
        text().enum_values(Some(names)).into()
    }
}

impl CreateFaultPlanParams {
    /// The plan that is asked for, with this id. `routes` are those of the API, without `/v1`.
    pub fn plan(self, id: FaultPlanId, routes: &KnownRoutes) -> Result<FaultPlan, ApiError> {
        let about_webhooks = self.fault.is_of_webhooks();
        let target = match (self.route, self.event) {
            (Some(route), None) if !about_webhooks => target(&route, routes)?,
            (None, Some(event)) if about_webhooks => format!("{EVENT}{event}"),
            _ => {
                let param = if about_webhooks { "event" } else { "route" };
                let message = format!("The fault {} needs {param} alone.", self.fault.as_str());
                return Err(ApiError::invalid(param, message));
            }
        };
        let ways = [self.first, self.every, self.percent];
        let ways = ways.iter().flatten().count();
        if ways > 1 {
            let message = "At most one of first, every and percent can be given.";
            return Err(ApiError::invalid("first", message));
        }
        Ok(FaultPlan {
            id,
            target,
            fault: self.fault,
            seconds: self.seconds.unwrap_or(SECONDS),
            first: self.first.or((ways == 0).then_some(1)),
            every: self.every,
            percent: self.percent,
            seed: self.seed.unwrap_or(0),
            acts_at_most: self.requests.unwrap_or(COUNT_MAX),
            matched: 0,
            acted: 0,
            created_at: Default::default(),
        })
    }
}

/// The target that `route` names: `[METHOD ]PATTERN`, with or without `/v1`.
fn target(route: &str, routes: &KnownRoutes) -> Result<String, ApiError> {
    if route == EVERY_REQUEST {
        return Ok(route.to_owned());
    }
    let (method, path) = match route.split_once(' ') {
        Some((method, path)) => (Some(method), path),
        None => (None, route),
    };
    let path = path.strip_prefix(Dialect::Stripe.prefix()).unwrap_or(path);
    let changes = |route: &&KnownRoute| {
        let methods = route.methods.split(", ").filter(|known| *known != "GET");
        methods
            .clone()
            .any(|known| method.is_none_or(|method| method == known))
    };
    if routes.get(path).as_ref().is_some_and(changes) {
        return Ok(method.map_or_else(|| path.to_owned(), |method| format!("{method} {path}")));
    }
    let nearest = routes.nearest(path);
    let nearest = nearest.map(|KnownRoute { pattern, methods }| {
        format!(" The nearest is {pattern}, which has {methods}.")
    });
    let message = format!(
        "Must be * or a route that changes something, such as POST /refunds.{}",
        nearest.unwrap_or_default()
    );
    Err(ApiError::invalid("route", message))
}

/// The refusal of one plan too many.
pub fn too_many_plans() -> ApiError {
    let message = format!("An account has at most {PLANS_MAX} fault plans. Delete one first.");
    ApiError::new(ErrorCode::ParameterInvalid, message)
}

views! {
    /// A fault plan, with what it has done.
    pub struct FaultPlanView as FaultPlan from plan: &FaultPlan where {
        let event = plan.target.strip_prefix(EVENT).map(str::to_owned);
    } {
        /// `flt_…`
        id: String [example = "flt_01kar2w7n9e4xt8f5mq0v3z6yd"] = plan.id.to_string();
        /// Always `fault_plan`.
        object: &'static str [pattern = "^fault_plan$"] = "fault_plan";
        /// On how many it has acted.
        acted: i64 = plan.acted;
        created = plan.created_at.timestamp();
        /// The type of event that it is about.
        maybe event: String = event.clone();
        /// It acts on every Nth.
        maybe every: i64 = plan.every;
        /// What happens.
        fault: &'static str [example = "reply_lost"] = plan.fault.as_str();
        /// It acts on the first N.
        maybe first: i64 = plan.first;
        /// Requests or deliveries of webhooks that it was about, so far.
        matched: i64 = plan.matched;
        /// The chance that it acts, in percent.
        maybe percent: i64 = plan.percent;
        /// It acts at most this often.
        requests: i64 = plan.acts_at_most;
        /// The route that it is about.
        maybe route: String = event.is_none().then(|| plan.target.clone());
        /// How long a delay is.
        seconds: i64 = plan.seconds;
        /// The seed of the chance.
        seed: i64 = plan.seed;
    }

    /// The end of a fault plan.
    pub struct DeletedFaultPlanView as DeletedFaultPlan of(id: String) {
        /// `flt_…`
        id: String [example = "flt_01kar2w7n9e4xt8f5mq0v3z6yd"] = id;
        /// Always `fault_plan`.
        object: &'static str [pattern = "^fault_plan$"] = "fault_plan";
        /// Always true.
        always deleted: bool = true;
    }
}
