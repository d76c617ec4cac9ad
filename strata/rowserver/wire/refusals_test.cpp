// Every refusal that a person may meet says what was expected, what was given and what helps.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/rows/cold_rows.h"
#include "strata/rowserver/rows/row_table.h"
#include "strata/rowserver/wire/server_processes_test.h"
#include "strata/rowserver/wire/tls_files.h"
#include "strata/transport/server_address.h"

namespace strata {
namespace {

void expect_helpful(const std::string& name, const std::function<void()>& refused) {
  try {
    refused();
    ADD_FAILURE() << name << " is not refused";
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::kInternal) << name << ": " << error.what();
    EXPECT_FALSE(error.text().expected.empty()) << name << ": " << error.what();
    EXPECT_FALSE(error.text().got.empty()) << name << ": " << error.what();
    EXPECT_FALSE(error.text().fix.empty()) << name << ": " << error.what();
  }
}

TEST(Refusals, OfServerOptionsNameAFix) {
  const ScratchFolder scratch;
  const std::pair<const char*, std::function<void(ServerOptions&)>> kChanges[] = {
      {"no features", [](auto& o) { o.features.clear(); }},
      {"no shards", [](auto& o) { o.shards = 0; }},
      {"too many shards", [](auto& o) { o.shards = kMostShards + 1; }},
      {"a shard below 0", [](auto& o) { o.shard = -1; }},
      {"a shard too many", [](auto& o) { o.shard = o.shards; }},
      {"no ranks", [](auto& o) { o.ranks = 0; }},
      {"too many ranks", [](auto& o) { o.ranks = 2'000'000'000; }},
      {"no folder", [](auto& o) { o.folder.clear(); }},
      {"one snapshot", [](auto& o) { o.kept_snapshots = 1; }},
      {"memory below 0", [](auto& o) { o.memory_bytes = -1; }},
      {"little memory", [](auto& o) { o.memory_bytes = 1; }},
      {"a log below 0", [](auto& o) { o.log_limit = -1; }},
      {"a replica with rows", [](auto& o) { o.follow = o.listen, o.from = {"rows"}; }},
      {"no address", [](auto& o) { o.listen = "nonsense"; }},
      {"no such port", [](auto& o) { o.listen = "127.0.0.1:99999"; }},
      {"no TLS", [](auto& o) { o.listen = "0.0.0.0:0"; }},
      {"no key",
       [&](auto& o) {
         o.access.tls.certificate = scratch.path("a.pem");
         std::ofstream(o.access.tls.certificate) << "no certificate";
       }},
      {"no such folder for the socket", [](auto& o) { o.listen = "unix:/nowhere/at/all"; }},
      {"somebody's folder for cold rows",
       [&](auto& o) {
         o.cold_folder = scratch.path();
         std::ofstream(scratch.path("letter")) << "mine";
       }},
      {"the same folder for rows and cold rows", [](auto& o) { o.cold_folder = o.folder; }},
  };
  for (const auto& [name, change] : kChanges) {
    ServerOptions options = options_for_test(scratch.path(), 0, 2, 1);
    change(options);
    expect_helpful(name, [&] { const EmbedServer server(options); });
  }
}

TEST(Refusals, OfQuestionsNameAFix) {
  const ScratchFolder scratch;
  EmbedServer server(options_for_test(scratch.path(), 0, 2, 1));
  std::uint64_t other = 0;
  while (shard_of(0, other, 2) != 1) ++other;
  RowInspection& rows = server.inspection();
  expect_helpful("no name", [&] { rows.row("", 1); });
  expect_helpful("a misspelt feature", [&] { rows.row("usr", 1); });
  expect_helpful("hot ids of no feature", [&] { rows.hot("nobody", 3); });
  expect_helpful("a row of another shard", [&] { rows.row("user", other); });
  expect_helpful("rows of another shard", [&] { rows.rows("user", {other}); });
  expect_helpful("a version that no rank makes", [&] { rows.digest_at(7); });
  EXPECT_EQ(rows.hot("user", -1).ids().size(), 0u);
}

TEST(Refusals, OfTablesNameAFix) {
  const std::vector<FeatureSpec> features = features_for_test();
  expect_helpful("two of one name", [&] { RowTable({features[0], features[0]}, {}); });
  expect_helpful("little memory", [&] { RowTable({features[0]}, {.memory_bytes = 10}); });
  expect_helpful("no filter", [&] { RowTable({features[0]}, {.bloom_bytes = 0}); });
  FeatureSpec nameless = features[0];
  nameless.name.clear();
  expect_helpful("no name", [&] { RowTable({nameless}, {}); });
  FeatureSpec wide = features[0];
  wide.width = 1 << 20;
  expect_helpful("too wide", [&] { RowTable({wide}, {}); });
}

}  // namespace
}  // namespace strata
