//! The verbs of `/webhook_endpoints`.

mod create;
mod delete;
mod update;

pub use create::CreateWebhookEndpoint;
pub use delete::DeleteWebhookEndpoint;
pub use update::UpdateWebhookEndpoint;
