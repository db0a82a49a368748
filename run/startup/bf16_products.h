// Chooses how a CPU with bf16 instructions computes bf16 products: with these instructions
// ("native"), or by widening the operands to fp32 block by block ("widened").
//
// The presence of the instructions says nothing about their speed, so a run whose
// runtime.bf16_products is "auto" measures both ways when it starts. The two ways differ in the
// last digits of the results. All ranks of a run therefore use the same way, and a run keeps its
// way when it is resumed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu_library.h"
#include "run/processes/launch.h"
#include "settings/config.h"

namespace trident {

struct Bf16Rates {
  double native = 0, widened = 0;  // FLOP/s

  bool known() const { return native > 0 && widened > 0; }
};

// The facts about a machine on which the choice depends.
struct Bf16Machine {
  CpuBf16 instructions = CpuBf16::none;
  Bf16Rates kept = {};                       // measured by an earlier run
  std::function<Bf16Rates()> measure = {};   // takes about a second
  std::function<void(Bf16Rates)> keep = {};  // stores the rates for later runs; may be empty
};

// The machine of this process. Its `measure` runs products of the config's sizes on all cores of
// the process's ranks, alternating between the two ways. Its `keep` writes the rates to
// launch.cache_folder.
Bf16Machine bf16_machine(const Config&, const Launch&);

struct Bf16Choice {
  std::string way;   // "auto" where the config or the CPU offers no choice
  std::string text;  // explains the choice to people; "" where it needs no explanation
};
// Chooses for a run. `saved` is the way of the run that is resumed, "" for a new run. A resumed run
// keeps its way even where the other way is faster here; the text then names the faster way.
Bf16Choice choose_bf16_products(const Config&, const std::string& saved, const Bf16Machine&);
// Chooses for trained weights: `saved` where it is known, else "native", or "widened" where an
// earlier measurement shows it to be 1.2 times as fast here. Measures nothing.
std::string choose_products_of_weights(const Config&, const std::string& saved, const Bf16Machine&);
// The same for weights in these directories. `saved` comes from the first directory that records
// it.
std::string products_of_weights(const Config&, const std::vector<std::string>& directories,
                                const Launch&);

// The way that a new run would choose here, from rates of earlier runs. Measures nothing.
std::string expected_bf16_products(const Config&, const Launch&);

// The way of the run to which this folder belongs, as its files record it; "" where they don't.
// `directory` is the run's folder, its weights, or one of its checkpoints.
std::string saved_bf16_products(const std::string& directory);

// Replaces "auto" in `config` by the choice of rank 0 and returns the text of that choice. Returns
// "" where `config` names a way already. Collective over the job's processes.
std::string agree_on_bf16_products(Config& config, const Launch&,
                                   const std::function<Bf16Choice()>& choose);

}  // namespace trident
