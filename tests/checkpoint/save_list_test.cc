// The state that a rank saves, compared number by number.
#include "checkpoint/save_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

template <class Bits>
void expect_infinities_found(const SaveList& list, Bits largest, Bits infinity) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  const std::uint64_t weights = list.weights().files[0].layout.offsets[0];
  const auto check = [&](const std::vector<Bits>& numbers) {
    list.require_finite(std::as_bytes(std::span(numbers)), {.file = 0, .offset = weights});
  };
  for (std::size_t count = 1; count < 20; ++count) {
    for (const Bits finite : {largest, static_cast<Bits>(largest | sign), Bits{0}}) {
      std::vector<Bits> numbers(count, finite);
      EXPECT_NO_THROW(check(numbers));
      for (std::size_t at = 0; at < count; ++at) {
        for (const Bits wrong : {infinity, static_cast<Bits>(infinity | sign | 1)}) {
          numbers[at] = wrong;
          EXPECT_THROW(check(numbers), Error) << count << " numbers, at " << at;
          numbers[at] = finite;
        }
      }
    }
  }
}

TEST(SaveList, NoNumberThatIsNotFiniteIsPassedOver) {
  for (const char* type : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(type);
    const TempDir dir;
    const Config config =
        run_config(dir.path(), small + Overrides{std::string("precision.dtype=") + type});
    on_ranks(config, transport_options(config), [&](Rank& own) {
      const State state = own.stepper.state();
      const SaveList list(own.model, state, 0);
      if (own.model.shape().dtype == DType::f32) {
        expect_infinities_found<std::uint32_t>(list, 0x7f7f'ffff, 0x7f80'0000);
      } else if (own.model.shape().dtype == DType::bf16) {
        expect_infinities_found<std::uint16_t>(list, 0x7f7f, 0x7f80);
      } else {
        expect_infinities_found<std::uint16_t>(list, 0x7bff, 0x7c00);
      }
    });
  }
}

// Hugging Face stores GPT-2's weights transposed. Saving transposes by tiles, loading in another
// way.
TEST(SaveList, WeightsOfAnySizeAreTransposedAndBack) {
  for (const char* hidden : {"34", "70", "96"}) {
    SCOPED_TRACE(hidden);
    const TempDir uninterrupted, dir;
    const Overrides wide{std::string("model.hidden_size=") + hidden};
    Job(every_second(uninterrupted, wide)).run();
    Messages dies;
    Job(every_second(dir, wide)).run(dies.hooks(4));
    Job(every_second(dir, wide)).run();
    EXPECT_EQ(metrics_in(dir.path()), metrics_in(uninterrupted.path()));
    EXPECT_EQ(sums_of(dir / "w/iteration-6"), sums_of(uninterrupted / "w/iteration-6"));
  }
}

}  // namespace
}  // namespace trident::testing
