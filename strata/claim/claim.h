/// Holds what a paper published, what Strata computes for the same settings, and what Strata would
/// do on the same machines.
///
/// A row is reproduced if the difference is within its tolerance and a part of Strata computed it:
/// a count of layers, a ledger, a schedule, a simulation. Arithmetic over other published numbers
/// shows only that these agree; such a row is consistent. A row outside of its tolerance needs an
/// explanation, which covers differences up to a stated share of the published number: an
/// explanation does not excuse a number that moves away later.
///
/// Units  of a row, as its `unit` says; tolerances in the same unit or as a share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/units.h"

namespace strata {

/// How far apart two numbers may be: the larger of both counts.
struct Tolerance {
  double absolute = 0;
  double relative = 0;  ///< of the published number
};
/// Half of the last printed digit.
Tolerance rounding(int decimals);
Tolerance within(double share);

/// What is known of a row outside of its tolerance, and how far it is known to be.
struct Explanation {
  std::string text = {};
  double up_to = 0;   ///< share of the published number
  bool known = true;  ///< false: the text says what is known, but not the cause
};

struct ClaimRow {
  std::string what;
  std::string unit;  ///< empty: a count or a ratio
  int decimals = 1;  ///< printed
  double published = 0;
  double reproduced = 0;
  Tolerance tolerance = {};
  Explanation explanation = {};
  /// `reproduced` follows from other published numbers, or a constant was set with this one.
  bool from_published = false;
};

enum class Verdict : std::uint8_t { kReproduced, kConsistent, kExplained, kNotExplained, kMissed };
const char* name_of(Verdict verdict);  ///< "reproduced", ..., "not explained", "missed"

Verdict verdict_of(const ClaimRow& row);
/// (reproduced - published) / published; the plain difference if the paper published 0.
double difference_of(const ClaimRow& row);

/// A plan of Strata for a model on the machines of a claim.
struct StrataPlan {
  std::string model;     ///< "1008 G, 3,072 A100, 3,072 samples"
  std::string mesh;      ///< "pp 64, dp 6, tp 8, zero 1"
  std::string schedule;  ///< "interleaved x 2, micro-batch 1, recompute cheap"
  double bytes = 0;      ///< on the fullest rank
  double device_bytes = 0;
  double step_seconds = 0;
  double utilisation = 0;            ///< model FLOP/s, without recomputes, of the data sheet's peak
  double published_utilisation = 0;  ///< of the paper, counted in the same way; 0: not stated
  /// Of the paper's mesh in Strata's simulator; 0: not simulated.
  double their_mesh_utilisation = 0;
};

/// Another figure of Strata on the machines of a claim, for claims that are no meshes.
struct StrataFigure {
  std::string what;
  std::string value;
};

struct Claim {
  std::string name;                ///< on the command line
  std::string system;              ///< "GPipe"
  std::string statement;           ///< what was published, in one sentence
  std::string source;              ///< paper, table, arXiv number
  std::string method;              ///< how Strata computes its numbers, in one sentence
  std::string pictured_unit = {};  ///< rows of this unit are drawn as bars; empty: none
  std::vector<ClaimRow> rows = {};
  std::vector<StrataPlan> plans = {};
  std::vector<StrataFigure> figures = {};
  std::string strata = {};  ///< the assumptions of plans and figures
};

/// Rows of each verdict.
struct VerdictCounts {
  int reproduced = 0, consistent = 0, explained = 0, not_explained = 0, missed = 0;
  VerdictCounts& operator+=(const VerdictCounts& other);
  friend bool operator==(const VerdictCounts&, const VerdictCounts&) = default;
};
VerdictCounts verdicts_of(const Claim& claim);
/// "166 rows reproduced, 42 consistent, 20 explained, 28 not explained, 0 missed"
std::string words_of(const VerdictCounts& counts);
/// The exit status of the program: 1 if a row is missed, 0 otherwise.
int exit_status(const std::vector<Claim>& claims);

}  // namespace strata
