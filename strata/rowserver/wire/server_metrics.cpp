#include "strata/rowserver/wire/server_metrics.h"

#include <algorithm>
#include <sstream>

#include "strata/base/prometheus_text.h"

namespace strata {
namespace {

void head(std::ostream& out, const std::string& name, const char* type, const char* help) {
  out << prometheus_head("strata_embed_" + name, type, help);
}

// Upper ends of buckets: every bound up to 8, then powers of two.
constexpr std::int64_t kBuckets[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 63};

void write_staleness(std::ostream& out, const ServerMetrics& metrics) {
  head(out, "staleness", "histogram",
       "updates of a feature's gradients, by update number minus the version of their rows");
  for (std::size_t i = 0; i < metrics.features.size(); ++i) {
    const StalenessCounts& counts = metrics.gate.staleness[i];
    const std::string feature =
        "{feature=\"" + prometheus_label_value(metrics.features[i].name) + "\"";
    std::int64_t below = 0, all = 0, sum = 0;
    std::size_t next = 0;
    for (std::size_t stale = 0; stale < counts.size(); ++stale) {
      all += counts[stale];
      sum += counts[stale] * static_cast<std::int64_t>(stale);
    }
    for (const std::int64_t bound : kBuckets) {
      for (; next <= static_cast<std::size_t>(bound); ++next) below += counts[next];
      out << "strata_embed_staleness_bucket" << feature << ",le=\"" << bound << "\"} " << below
          << '\n';
    }
    out << "strata_embed_staleness_bucket" << feature << ",le=\"+Inf\"} " << all << '\n'
        << "strata_embed_staleness_sum" << feature << "} " << sum << '\n'
        << "strata_embed_staleness_count" << feature << "} " << all << '\n';
  }
}

}  // namespace

std::string prometheus_text(const ServerMetrics& metrics) {
  std::ostringstream out;
  const auto one = [&](const std::string& name, const char* type, std::int64_t value,
                       const char* help) {
    head(out, name, type, help);
    out << "strata_embed_" << name << ' ' << value << '\n';
  };
  one("shard", "gauge", metrics.shard, "number of this shard");
  one("shards", "gauge", metrics.shards, "of the table");
  one("version", "gauge", metrics.gate.version, "updates that the rows have");
  one("durable_version", "gauge", metrics.durable_version, "updates that survive a power cut");
  one("reads_total", "counter", metrics.gate.reads, "requests to read rows");
  one("rows_read_total", "counter", metrics.gate.rows_read, "rows that were requested");
  one("updates_total", "counter", metrics.gate.updates, "updates applied");
  one("rows_updated_total", "counter", metrics.gate.rows_updated, "rows that updates changed");
  one("parts_total", "counter", metrics.gate.parts, "parts of updates, one a rank");
  one("repeated_parts_total", "counter", metrics.gate.repeated_parts, "parts that came again");
  one("repeated_requests_total", "counter", metrics.sessions.repeated_requests,
      "requests that came again");
  one("streams_total", "counter", metrics.sessions.streams, "streams that ranks opened");
  one("connected_ranks", "gauge", metrics.sessions.connected_ranks, "ranks with a stream");
  one("received_bytes_total", "counter", metrics.sessions.received_bytes, "of messages");
  one("sent_bytes_total", "counter", metrics.sessions.sent_bytes, "of messages");
  one("log_bytes", "gauge", metrics.log_bytes, "of the log of updates on disk");
  one("log_snapshots_total", "counter", metrics.compactions.made,
      "snapshots that were made because the log was too long");
  one("log_snapshot_failures_total", "counter", metrics.compactions.failed,
      "snapshots for that reason that could not be made");
  one("memory_bytes", "gauge", metrics.memory_bytes, "of rows and index");
  if (metrics.replica) {
    const ReplicaCounts& replica = *metrics.replica;
    one("following", "gauge", replica.following ? 1 : 0, "whether there is a stream of updates");
    one("primary_version", "gauge", replica.primary_version,
        "updates that the primary had when it was heard last");
    one("lag_updates", "gauge",
        std::max<std::int64_t>(0, replica.primary_version - metrics.gate.version),
        "that the primary has and the rows here lack");
    one("follow_streams_total", "counter", replica.connections, "streams of updates");
    one("fetched_snapshots_total", "counter", replica.snapshots, "from the primary");
    one("equal_digests_total", "counter", replica.equal_digests,
        "versions whose rows were those of the primary");
    one("different_digests_total", "counter", replica.different_digests,
        "versions whose rows were not, which a new snapshot replaced");
  }
  head(out, "rows", "gauge", "rows of a feature");
  for (std::size_t i = 0; i < metrics.features.size(); ++i)
    out << "strata_embed_rows{feature=\"" << prometheus_label_value(metrics.features[i].name)
        << "\"} " << metrics.rows[i] << '\n';
  write_staleness(out, metrics);
  return out.str();
}

}  // namespace strata
