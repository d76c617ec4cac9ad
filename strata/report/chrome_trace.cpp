#include "strata/report/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "strata/base/durable_file.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// Sets the order in which threads are shown: a rank, then its tracks.
Json place_of(std::size_t pid, std::size_t tid, std::size_t place) {
  return {{"name", "thread_sort_index"},
          {"ph", "M"},
          {"pid", pid},
          {"tid", tid},
          {"args", {{"sort_index", place}}}};
}

Json name_of(const char* what, std::size_t pid, std::size_t tid, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

// Whole nanoseconds: finer digits are noise and double the size of the file.
double microseconds(double seconds) {
  return static_cast<double>(std::llround(seconds * 1e9)) / 1e3;
}

Json span(const std::string& name, const char* kind, const std::pair<double, double>& seconds,
          std::size_t pid, std::size_t tid, Json arguments) {
  return {{"name", name},
          {"cat", kind},
          {"ph", "X"},
          {"pid", pid},
          {"tid", tid},
          {"ts", microseconds(seconds.first)},
          {"dur", microseconds(seconds.second - seconds.first)},
          {"args", std::move(arguments)}};
}

Json span_of(const TraceEvent& event, double origin, std::size_t pid, std::size_t tid) {
  Json arguments = Json::object();
  if (event.stage >= 0) arguments["stage"] = event.stage;
  if (event.micro_batch >= 0) arguments["micro_batch"] = event.micro_batch;
  if (event.first_layer >= 0) arguments["first_layer"] = event.first_layer;
  return span(span_name(event), kind_of(event.op),
              {event.begin_seconds - origin, event.end_seconds - origin}, pid, tid,
              std::move(arguments));
}

Json span_of(const TrackEvent& event, double origin, std::size_t pid, std::size_t tid) {
  const bool of_layer = event.layer >= 0;
  return span(of_layer ? "layer " + std::to_string(event.layer) : name_of(event.track),
              name_of(event.track), {event.begin_seconds - origin, event.end_seconds - origin}, pid,
              tid, of_layer ? Json{{"layer", event.layer}} : Json::object());
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
    if (std::ranges::all_of(process.tracks, &std::vector<TrackEvent>::empty)) continue;
    constexpr std::size_t kThreads = 1 + kNumTrackKinds;  // threads of a rank
    const std::size_t ranks = process.ranks.size();
    for (std::size_t rank = 0; rank < ranks; ++rank) add(place_of(pid, rank, rank * kThreads));
    for (std::size_t rank = 0; rank < process.tracks.size(); ++rank) {
      std::set<TrackKind> named;
      for (const TrackEvent& event : process.tracks[rank]) {
        const auto track = static_cast<std::size_t>(event.track);
        const std::size_t tid = ranks + rank * kNumTrackKinds + track;
        if (named.insert(event.track).second) {
          add(name_of("thread_name", pid, tid,
                      "rank " + std::to_string(rank) + ", " + name_of(event.track)));
          add(place_of(pid, tid, rank * kThreads + 1 + track));
        }
        add(span_of(event, process.origin_seconds, pid, tid));
      }
    }
  }
  return text + "\n]}\n";
}

void write_chrome_trace(const std::string& path, const std::vector<TraceProcess>& processes) {
  write_file(path, to_chrome_trace(processes));
}

}  // namespace strata
