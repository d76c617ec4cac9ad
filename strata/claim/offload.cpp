// The largest models that DeepSpeed trains on one V100 and one DGX-2 with host memory and disks.
#include <string>

#include "strata/base/units.h"
#include "strata/claim/claim_machines.h"
#include "strata/claim/claims.h"
#include "strata/claim/largest_decoder.h"
#include "strata/plan/ledger/zero_bytes.h"

namespace strata {
namespace {

constexpr double kGiga = 1e9;

LargestDecoderRequest v100_request(std::int64_t width, const char* convention) {
  return {.shape = {.width = width, .heads = width / 128, .vocabulary = 50304, .tokens = 1024},
          .machine = claim_machine("v100-dgx2"),
          .convention = convention};
}

void add_size(Claim& claim, const char* what, double published_g, double reproduced,
              Explanation why = {}) {
  claim.rows.push_back({.what = what,
                        .unit = "G",
                        .published = published_g,
                        .reproduced = reproduced / kGiga,
                        .tolerance = within(0.1),
                        .explanation = std::move(why)});
}

void add_v100(Claim& claim) {
  const auto wide = largest_decoders(v100_request(4096, "zero-paper"));
  const auto narrow = largest_decoders(v100_request(2048, "megatron-fp16"));
  add_size(claim, "PyTorch, all on a V100 of 32 GB", 1.4,
           depth_of(narrow, Placement::kDevice).parameters,
           {"The paper names neither shape nor samples of this model; Strata's ledger "
            "fills the device with layers of width 2,048 and one sample.",
            0.25, false});
  add_size(claim, "ZeRO-Offload: gradients and states on the host", 13,
           depth_of(wide, Placement::kOffload).parameters,
           {"2 bytes for each of 13 G parameters are 26 of the device's 34 GB; what "
            "else the paper's run keeps there is not published.",
            0.3, false});
  add_size(claim, "ZeRO-3 Offload: weights on the host, too", 40,
           depth_of(wide, Placement::kWindow).parameters,
           {"DeepSpeed stops at 40 G, which is 37 bytes of the host's 1.5 TB for each parameter; "
            "16 suffice in Strata's ledger.",
            1.5, false});
}

// Shares of a DGX-2: sixteen V100 of 32 GB, 1.5 TB of memory, 28 TB of NVMe.
void add_dgx2(Claim& claim) {
  constexpr int kDevices = 16;
  constexpr double kDeviceBytes = 32.0 * (1 << 30), kHostBytes = 1.5e12, kDiskBytes = 28e12;
  const ParameterBytes& paper = precision_convention("zero-paper");
  const auto most = [&](int zero, double bytes) {  // parameters
    return bytes / zero_bytes(1, paper, zero, kDevices).total();
  };
  add_size(
      claim, "one DGX-2, data parallel", 1.4, most(0, kDeviceBytes),
      {"States alone: 16 bytes a parameter fill 32 GB at 2.1 G. Activations and buffers of the "
       "paper's run are not published.",
       0.6});
  add_size(claim, "one DGX-2, ZeRO-3", 20, most(3, kDeviceBytes),
           {"States alone fill the devices at 34 G. Activations and buffers of the paper's run are "
            "not published.",
            0.8});
  const double states = kHostBytes / paper.total();
  add_size(
      claim, "one DGX-2, ZeRO-Infinity with host memory", 70, states,
      {"States alone: 16 bytes a parameter fill 1.5 TB at 94 G. What else the paper's run keeps "
       "there is not published.",
       0.4});
  add_size(claim, "one DGX-2, ZeRO-Infinity with NVMe", 1000, kDiskBytes / paper.total(),
           {"States alone: 16 bytes a parameter fill 28 TB at 1,750 G. What else is there is not "
            "published.",
            0.8});
}

// The bytes that cross the link in a step, per parameter: ZeRO-Offload's least cut, section 4.
void add_link(Claim& claim) {
  const ParameterBytes& paper = precision_convention("zero-paper");
  claim.rows.push_back({.what = "least bytes over the link a step and parameter",
                        .unit = "bytes",
                        .decimals = 0,
                        .published = 4,
                        .reproduced = paper.gradient + paper.weight,
                        .tolerance = rounding(0),
                        .from_published = true});
  claim.rows.push_back(
      {.what = "ZeRO-Offload leaves one eighth of the bytes on the device: before over after",
       .unit = "times",
       .decimals = 0,
       .published = 8,
       .reproduced = paper.total() / paper.weight,
       .tolerance = rounding(0),
       .from_published = true});
}

}  // namespace

Claim offload_claim() {
  Claim claim{
      .name = "offload",
      .system = "DeepSpeed ZeRO-Offload, ZeRO-Infinity",
      .statement =
          "One V100 of 32 GB trains 13 G parameters with ZeRO-Offload and 40 G with ZeRO-3 "
          "Offload; a DGX-2 trains 70 G in host memory and a trillion with NVMe.",
      .source =
          "Ren et al. 2021, arXiv 2101.06840; Rajbhandari et al. 2021, arXiv 2104.07857 and "
          "its SC21 slides; DeepSpeed, docs/_posts/2021-03-08-zero3-offload.md",
      .method =
          "The deepest model of width 2,048 or 4,096 that Strata's ledger fits with the "
          "system's bytes and placement; for a DGX-2 bytes of states alone.",
      .pictured_unit = "G",
      .strata =
          "Strata's own bytes in fp16 with fp32 gradients, 18 a parameter, one sample of 1,024 "
          "tokens, "
          "width 4,096; the disk has 28 TB."};
  add_v100(claim);
  add_dgx2(claim);
  add_link(claim);
  LargestDecoderRequest ours = v100_request(4096, "mixed");
  ours.disk_bytes = 28'000'000'000'000;
  for (const bool at_once : {false, true}) {
    ours.updates_at_once = at_once;
    for (const TierDepth& depth : largest_decoders(ours))
      claim.figures.push_back({"Strata " + depth.placement + (at_once ? ", clip 0" : ", clip 1"),
                               (depth.any ? "at least " : "") + std::to_string(depth.blocks) +
                                   " layers, " + format_double(depth.parameters / kGiga, 1) +
                                   " G"});
  }
  return claim;
}

}  // namespace strata
