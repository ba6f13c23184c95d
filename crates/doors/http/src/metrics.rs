//! Numbers for Prometheus: what the service counts, and what this door does.

use std::fmt;
use std::time::Duration;

use box_core::Service;
use box_core::mcp::{CALL_BOUNDS_SEC, McpCalls};
use box_core::service::Counters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of the latency histogram in seconds: from a cached answer to a command that runs for a minute.
const LATENCY_BOUNDS_SEC: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 20.0, 60.0];

/// The metrics of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    latency: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

/// Routes are templates and methods are known ones, so that no stranger can invent a new series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new(service: Service) -> Self {
        let mut registry = Registry::with_prefix("strongbox");
        let requests = Family::default();
        let latency: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(LATENCY_BOUNDS_SEC));
        registry.register("http_requests", "Requests that were answered", requests.clone());
        let help = "Time until an answer began";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, latency.clone());
        registry.register_collector(Box::new(McpServerNumbers(service.clone())));
        registry.register_collector(Box::new(ServiceNumbers(service)));
        Self { registry, requests, latency }
    }

    /// Counts one answer.
    pub fn count(&self, method: &http::Method, route: &str, status: http::StatusCode, took: Duration) {
        let labels = RequestLabels { method: known_method(method), route: route.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&labels).inc();
        self.latency.get_or_create(&RouteLabels { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    /// Everything, as text.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut written = String::new();
        text::encode(&mut written, &self.registry)?;
        Ok(written)
    }
}

fn known_method(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// Numbers of the service, collected for each scrape.
#[derive(Debug)]
struct ServiceNumbers(Service);

impl Collector for ServiceNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = self.0.counters();
        for (name, help, value) in gauges(&now) {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in counters(&now) {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

/// Metrics of MCP servers, read on demand. Their number is bounded where they are counted.
#[derive(Debug)]
struct McpServerNumbers(Service);

#[derive(Debug, EncodeLabelSet)]
struct McpServerLabels {
    status: &'static str,
}

#[derive(Debug, EncodeLabelSet)]
struct McpCallLabels {
    tenant: String,
    server: String,
    outcome: &'static str,
}

impl Collector for McpServerNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(now) = self.0.mcp_numbers() else { return Ok(()) };
        let mut servers = encoder.encode_descriptor("mcp_servers", "MCP servers by status", None, MetricType::Gauge)?;
        for (status, count) in now.servers {
            let labels = McpServerLabels { status: status.as_str() };
            ConstGauge::new(count).encode(servers.encode_family(&labels)?)?;
        }
        let help = "Finished MCP tool calls";
        let mut calls = encoder.encode_descriptor("mcp_calls", help, None, MetricType::Counter)?;
        for McpCalls { tenant, server, outcome, count } in now.calls {
            let labels = McpCallLabels { tenant, server, outcome };
            ConstCounter::new(count).encode(calls.encode_family(&labels)?)?;
        }
        let help = "Duration of MCP tool calls";
        let unit = Some(&Unit::Seconds);
        let mut durations = encoder.encode_descriptor("mcp_call_duration", help, unit, MetricType::Histogram)?;
        let bounds = CALL_BOUNDS_SEC.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(now.durations).collect();
        durations.encode_histogram::<NoLabelSet>(now.duration_sec, now.durations.iter().sum(), &buckets, None)
    }
}

fn gauges(now: &Counters) -> [(&'static str, &'static str, u64); 3] {
    [
        ("sessions", "Sessions that exist", now.sessions),
        ("execs_running", "Commands that run", now.execs_running),
        ("processes_running", "Managed processes that run", now.processes_running),
    ]
}

fn counters(now: &Counters) -> [(&'static str, &'static str, u64); 7] {
    [
        ("sessions_created", "Sessions that were made", now.sessions_created),
        ("sessions_failed", "Sessions that could not be made", now.sessions_failed),
        ("sessions_expired", "Sessions that were removed after they expired", now.sessions_expired),
        ("sessions_lost", "Sessions whose box vanished", now.sessions_lost),
        ("execs_started", "Commands that were started", now.execs_started),
        ("execs_timed_out", "Commands whose deadline passed", now.execs_timed_out),
        ("processes_restarted", "Managed processes that were started again", now.processes_restarted),
    ]
}
