// How bf16 products are done on a CPU that has instructions for them: by these ("native"), or from
// operands that become fp32 block by block ("widened"). The instructions being there says nothing
// of their speed, so a run whose runtime.bf16_products is "auto" measures both ways at its start.
// They differ in last digits: a run keeps its way, and all its ranks have the same.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu_library.h"
#include "run/launch/launch.h"
#include "settings/config.h"

namespace trident {

struct Bf16Rates {
  double native = 0, widened = 0;  // FLOP/s

  bool known() const { return native > 0 && widened > 0; }
};

// What the choice goes by.
struct Bf16Machine {
  CpuBf16 instructions = CpuBf16::none;
  Bf16Rates kept = {};                       // by an earlier run
  std::function<Bf16Rates()> measure = {};   // takes about a second
  std::function<void(Bf16Rates)> keep = {};  // for later ones; may be empty
};

// The machine of this process. It measures products of the config's sizes on the cores that its
// ranks have together, both ways in turns, and keeps what it finds in launch.cache_folder.
Bf16Machine bf16_machine(const Config&, const Launch&);

struct Bf16Choice {
  std::string way;   // "auto" where there is nothing to choose
  std::string text;  // for people; "" where there is nothing to say
};
// For a run. `saved`: the way of the run that it goes on with, "" for none. That stays, whatever is
// faster here; where this is another way, the text names it.
Bf16Choice choose_bf16_products(const Config&, const std::string& saved, const Bf16Machine&);
// For weights: `saved` as above, else "widened" only where it is known to be 1.2 times as fast
// here. Nothing is measured.
std::string choose_products_of_weights(const Config&, const std::string& saved, const Bf16Machine&);
// The same for the weights of these directories, of which the first that says it is what was saved.
std::string products_of_weights(const Config&, const std::vector<std::string>& directories,
                                const Launch&);

// What a new run would choose here, as far as that is known. Nothing is measured.
std::string expected_bf16_products(const Config&, const Launch&);

// The way of the run whose folder, weights or checkpoint this is, as its files say; else "".
std::string saved_bf16_products(const std::string& directory);

// Where `config` has "auto" it gets what rank 0 has chosen; then the choice's text is given.
// Collective over the job's processes.
std::string agree_on_bf16_products(Config& config, const Launch&,
                                   const std::function<Bf16Choice()>& choose);

}  // namespace trident
