// Persia's hundred trillion parameters on rented machines. Samples a second are measured by Persia;
// what follows from counts is computed.
#include <algorithm>
#include <cmath>
#include <string>

#include "strata/base/units.h"
#include "strata/claim/claims.h"

namespace strata {
namespace {

constexpr double kParameters = 100e12;
constexpr double kServerBytes = 12e12;
constexpr int kServers = 30, kWorkers = 100, kGpuMachines = 8, kGpusAMachine = 8;
constexpr int kServerCores = 416, kWorkerCores = 30;
constexpr double kHybrid = 1.91e6, kSynchronous = 0.73e6, kAsynchronous = 2.15e6;  // samples/s
constexpr double kIdsASample = 26;

double servers_for(double element_bytes) {
  return std::ceil(kParameters * element_bytes / kServerBytes);
}

void add_cluster(Claim& claim) {
  const auto add = [&](const char* what, const char* unit, double published, double reproduced,
                       Tolerance tolerance = rounding(0)) {
    claim.rows.push_back({.what = what,
                          .unit = unit,
                          .decimals = 0,
                          .published = published,
                          .reproduced = reproduced,
                          .tolerance = tolerance,
                          .from_published = true});
  };
  add("virtual machines", "", 138, kServers + kWorkers + kGpuMachines);
  add("A100 of the dense network", "GPUs", 64, kGpuMachines * kGpusAMachine);
  add("cores of the embedding workers", "", 3000, kWorkers * kWorkerCores);
  add("memory of the parameter servers", "TB", 360, kServers * kServerBytes / 1e12);
}

void add_capacity(Claim& claim) {
  claim.rows.push_back(
      {.what = "servers of 12 TB that hold 100 T parameters in fp32",
       .unit = "",
       .decimals = 0,
       .published = kServers,
       .reproduced = servers_for(4),
       .tolerance = rounding(0),
       .explanation = {"400 TB of fp32 do not fit into 360 TB: the run cannot have had every row "
                       "in fp32, which is all that Persia's released code stores. What it had is "
                       "not published.",
                       0.15}});
}

void add_speed(Claim& claim) {
  const auto add = [&](const char* what, double published, double reproduced, int decimals) {
    claim.rows.push_back({.what = what,
                          .unit = "times",
                          .decimals = decimals,
                          .published = published,
                          .reproduced = reproduced,
                          .tolerance = rounding(decimals),
                          .from_published = true});
  };
  add("hybrid over synchronous, from the figure's samples a second", 2.6, kHybrid / kSynchronous,
      1);
  add("hybrid over asynchronous, from the figure's samples a second", 0.89, kHybrid / kAsynchronous,
      2);
}

// Of the figure at 6.25, 12.5, 25, 50 and 100 T parameters.
double spread_of_speeds() {
  constexpr double kSamples[] = {1.79e6, 1.85e6, 1.89e6, 1.83e6, 1.91e6};
  const auto [least, most] = std::ranges::minmax(kSamples);
  return most / least;
}

}  // namespace

Claim persia_claim() {
  Claim claim{
      .name = "persia",
      .system = "Persia",
      .statement =
          "A recommender of 100 T parameters trains on 138 virtual machines at 1.9 M "
          "samples a second, 2.6 times as fast as synchronously.",
      .source =
          "Lian et al. 2021, arXiv 2111.05897; PersiaML/tutorials, src/benchmark/index.md and "
          "its figures",
      .method =
          "Arithmetic from counts and the figures' values. Samples a second depend on "
          "machines that no published number describes, so they are not predicted.",
      .strata =
          "Bytes of the values alone; strata size embeddings 100T --width 16 adds what a row "
          "needs beside them, and the network. Rows may be fp32, fp16, bf16 or int8."};
  add_cluster(claim);
  add_capacity(claim);
  add_speed(claim);
  claim.figures.push_back(
      {"samples a second of 6.25 to 100 T parameters in the figure, largest over "
       "least",
       format_double(spread_of_speeds(), 2) + " times"});
  const double rows = kHybrid * kIdsASample;
  claim.figures.push_back(
      {"rows that a sample of 26 ids reads, per server and second", format_count(rows / kServers)});
  claim.figures.push_back(
      {"the same per core of a server", format_count(rows / kServers / kServerCores)});
  for (const auto& [name, bytes] : {std::pair{"fp32", 4.0}, {"16 bit", 2.0}, {"int8", 1.0}})
    claim.figures.push_back({"servers of 12 TB for 100 T parameters in " + std::string(name),
                             format_double(servers_for(bytes), 0)});
  return claim;
}

}  // namespace strata
