#include "strata/report/chrome_trace.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "strata/base/durable_file.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

Json name_of(const char* what, std::size_t pid, std::size_t tid, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

// Whole nanoseconds: finer digits are noise, and make the file twice as long.
double microseconds(double seconds) {
  return static_cast<double>(std::llround(seconds * 1e9)) / 1e3;
}

Json span_of(const TraceEvent& event, double origin, std::size_t pid, std::size_t tid) {
  Json arguments = Json::object();
  if (event.stage >= 0) arguments["stage"] = event.stage;
  if (event.micro_batch >= 0) arguments["micro_batch"] = event.micro_batch;
  if (event.first_layer >= 0) arguments["first_layer"] = event.first_layer;
  return {{"name", span_name(event)},
          {"cat", kind_of(event.op)},
          {"ph", "X"},
          {"pid", pid},
          {"tid", tid},
          {"ts", microseconds(event.begin_seconds - origin)},
          {"dur", microseconds(event.end_seconds - event.begin_seconds)},
          {"args", std::move(arguments)}};
}

}  // namespace

std::string span_name(const TraceEvent& event) {
  std::string name = kind_of(event.op);
  if (event.stage >= 0) name += " s" + std::to_string(event.stage);
  if (event.micro_batch >= 0) name += " m" + std::to_string(event.micro_batch);
  return name;
}

std::string to_chrome_trace(const std::vector<TraceProcess>& processes) {
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    text += separator + event.dump();
    separator = ",\n";
  };
  for (std::size_t pid = 0; pid < processes.size(); ++pid) {
    const TraceProcess& process = processes[pid];
    add(name_of("process_name", pid, 0, process.name));
    for (std::size_t rank = 0; rank < process.ranks.size(); ++rank) {
      add(name_of("thread_name", pid, rank, "rank " + std::to_string(rank)));
      for (const TraceEvent& event : process.ranks[rank]) {
        add(span_of(event, process.origin_seconds, pid, rank));
      }
    }
  }
  return text + "\n]}\n";
}

void write_chrome_trace(const std::string& path, const std::vector<TraceProcess>& processes) {
  write_file(path, to_chrome_trace(processes));
}

}  // namespace strata
