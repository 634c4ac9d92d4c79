//! `charge-once faults`: faults that act on a test account's requests by themselves.

use std::time::Duration;

use charge_once_client::{FaultPlan, NewFaultPlan};

use super::{
    BoxError, print,
    service::{self, AFTER_HELP, Service},
    terminal::aligned,
};

const DEADLINE: Duration = Duration::from_secs(15);

/// What is done with fault plans.
#[derive(Debug, clap::Subcommand)]
pub enum FaultsCommand {
    /// Plans a fault: from now on it acts on requests, or on webhooks.
    #[command(after_help = AFTER_HELP)]
    Add {
        /// Which.
        #[command(flatten)]
        plan: PlanArguments,
        /// Where.
        #[command(flatten)]
        service: Service,
    },
    /// Lists the plans, with what they have done.
    #[command(after_help = AFTER_HELP)]
    List {
        /// Where.
        #[command(flatten)]
        service: Service,
    },
    /// Ends one plan, or all.
    #[command(after_help = AFTER_HELP)]
    Clear {
        /// Only this one: flt_…
        #[arg(value_name = "PLAN")]
        id: Option<String>,
        /// Where.
        #[command(flatten)]
        service: Service,
    },
}

/// A plan, as the API takes it. The service checks it.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArguments {
    /// What happens: reply_lost, request_lost, delay, 500, 503, 429 or in_use; or to webhooks:
    /// webhook_twice, webhook_late, webhook_out_of_order or webhook_lost.
    #[arg(long)]
    fault: Option<String>,
    /// To which requests with a key: "POST /v1/refunds", /v1/refunds, or * for all.
    #[arg(long, requires = "fault")]
    route: Option<String>,
    /// To which webhooks: a type of event, or * for all.
    #[arg(long, requires = "fault")]
    event: Option<String>,
    /// How long a delay is, in seconds.
    #[arg(long, requires = "fault")]
    seconds: Option<i64>,
    /// It acts on the first COUNT.
    #[arg(long, requires = "fault", value_name = "COUNT")]
    first: Option<i64>,
    /// It acts on every COUNTth: with 3, on the third, the sixth …
    #[arg(long, requires = "fault", value_name = "COUNT")]
    every: Option<i64>,
    /// The chance that it acts, in percent.
    #[arg(long, requires = "fault")]
    percent: Option<i64>,
    /// Makes the chance the same each time.
    #[arg(long, requires = "fault")]
    seed: Option<i64>,
    /// It acts on at most COUNT.
    #[arg(long, requires = "fault", value_name = "COUNT")]
    requests: Option<i64>,
}

impl PlanArguments {
    /// The plan.
    pub fn plan(&self) -> NewFaultPlan {
        NewFaultPlan {
            route: self.route.clone(),
            event: self.event.clone(),
            fault: self.fault.clone(),
            seconds: self.seconds,
            first: self.first,
            every: self.every,
            percent: self.percent,
            seed: self.seed,
            requests: self.requests,
        }
    }
}

/// Runs it to its end.
pub fn run(command: &FaultsCommand) -> Result<(), BoxError> {
    let stopped = || Err("stopped before it was done".into());
    service::block_on(work(command), stopped)
}

async fn work(command: &FaultsCommand) -> Result<(), BoxError> {
    let (FaultsCommand::Add { service, .. }
    | FaultsCommand::List { service }
    | FaultsCommand::Clear { service, .. }) = command;
    let client = service.client(DEADLINE)?;
    let explain = |error| service.explain(error);
    match command {
        FaultsCommand::Add { plan, .. } => {
            let plan = client.create_fault_plan(&plan.plan())?;
            show(&[plan.send().await.map_err(explain)?])
        }
        FaultsCommand::List { .. } => show(&client.list_fault_plans().await.map_err(explain)?.data),
        FaultsCommand::Clear { id, .. } => {
            let ids = match id {
                Some(id) => vec![id.clone()],
                None => {
                    let plans = client.list_fault_plans().await.map_err(explain)?.data;
                    plans.into_iter().map(|plan| plan.id).collect()
                }
            };
            for id in ids {
                if !client.delete_fault_plan(&id).await.map_err(explain)? {
                    return Err(format!("there is no plan {id}").into());
                }
                print(&format!("deleted {id}"))?;
            }
            Ok(())
        }
    }
}

/// Prints plans as a table.
pub fn show(plans: &[FaultPlan]) -> Result<(), BoxError> {
    let rows: Vec<_> = plans.iter().map(cells).collect();
    aligned(&rows).try_for_each(|line| print(&line))
}

/// Its id, what it is about, what happens, how often, and what it has done.
fn cells(plan: &FaultPlan) -> [String; 5] {
    let event = plan.event.as_ref().map(|event| format!("event {event}"));
    let often = match (plan.first, plan.every, plan.percent) {
        (Some(first), _, _) => format!("first {first}"),
        (_, Some(every), _) => format!("every {every}"),
        (_, _, percent) => format!("{} percent, seed {}", percent.unwrap_or(0), plan.seed),
    };
    [
        plan.id.clone(),
        event.or_else(|| plan.route.clone()).unwrap_or_default(),
        plan.fault.clone(),
        often,
        format!("acted on {} of {}", plan.acted, plan.matched),
    ]
}
