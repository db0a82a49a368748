#include "kernels/heads.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class HeadsTest : public KernelTest {
 protected:
  struct Parts {
    std::int64_t columns, begin, stride;
  };
  struct Case {
    std::int64_t rows, heads, dim;
    Parts from, to;
    std::int64_t at(const Parts& parts, std::int64_t row, std::int64_t head, std::int64_t i) const {
      return row * parts.columns + parts.begin + head * parts.stride + i;
    }
  };
};

TEST_P(HeadsTest, CopiesPartsOfEachHeadAndLeavesTheRest) {
  for (const Case& one :
       {Case{5, 3, 4, {17, 2, 5}, {20, 1, 6}}, Case{3, 4, 8, {8, 0, 0}, {64, 8, 16}},
        Case{4, 2, 8, {32, 16, 8}, {16, 0, 8}}, Case{2, 1, 3, {9, 4, 0}, {3, 0, 0}},
        Case{0, 2, 4, {8, 0, 4}, {8, 0, 4}}}) {
    const Values from = random(one.rows * one.from.columns, "from");
    const Values before = random(one.rows * one.to.columns, "to");
    const Tensor to = put(before, {one.rows, one.to.columns});
    copy_heads(context,
               {.heads = one.heads,
                .dim = one.dim,
                .from = {put(from, {one.rows, one.from.columns}), one.from.begin, one.from.stride},
                .to = {to, one.to.begin, one.to.stride}});
    Values want = before;
    for (std::int64_t t = 0; t < one.rows; ++t) {
      for (std::int64_t head = 0; head < one.heads; ++head) {
        for (std::int64_t i = 0; i < one.dim; ++i) {
          reference::at(want, one.at(one.to, t, head, i)) =
              reference::at(from, one.at(one.from, t, head, i));
        }
      }
    }
    EXPECT_EQ(get(to), want);
  }
}

TEST_P(HeadsTest, SumsAreInTheOrderOfHeads) {
  for (const Case& one :
       {Case{5, 7, 6, {80, 3, 11}, {9, 2, 0}}, Case{3, 4, 8, {64, 8, 16}, {8, 0, 0}}}) {
    const Values from = random(one.rows * one.from.columns, "from");
    const Values before = random(one.rows * one.to.columns, "to");
    const Tensor to = put(before, {one.rows, one.to.columns});
    sum_heads(context,
              {.heads = one.heads,
               .dim = one.dim,
               .from = {put(from, {one.rows, one.from.columns}), one.from.begin, one.from.stride},
               .to = {to, one.to.begin}});
    Values want = before;
    for (std::int64_t t = 0; t < one.rows; ++t) {
      for (std::int64_t i = 0; i < one.dim; ++i) {
        float sum = 0;
        for (std::int64_t head = 0; head < one.heads; ++head) {
          sum += static_cast<float>(reference::at(from, one.at(one.from, t, head, i)));
        }
        reference::at(want, one.at(one.to, t, 0, i)) = held(dtype, sum);
      }
    }
    EXPECT_EQ(get(to), want);
  }
}

TEST_P(HeadsTest, PartsThatDoNotFitAreRefused) {
  const Tensor x = empty({2, 12});
  const auto refused = [&](const HeadPartsArgs& args, const char* text) {
    EXPECT_THAT([&] { copy_heads(context, args); }, ThrowsMessage<Error>(HasSubstr(text)));
  };
  refused({.heads = 3, .dim = 4, .from = {x, 0, 5}, .to = {x, 0, 4}}, "need 3 parts of 4");
  refused({.heads = 3, .dim = 4, .from = {x, 0, 4}, .to = {x, 0, 3}}, "need 3 parts of 4");
  refused({.heads = 2, .dim = 4, .from = {x, 0, 4}, .to = {x}}, "need a stride");
  refused({.heads = 0, .dim = 4, .from = {x}, .to = {x}}, "need at least 1");
  refused({.heads = 1, .dim = 4, .from = {x}, .to = {empty({3, 4})}}, "need 2 rows");
  EXPECT_THROW(sum_heads(context, {.heads = 2, .dim = 4, .from = {x, 0, 4}, .to = {x, 0, 4}}),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Kernels, HeadsTest, testing::ValuesIn(all_setups()), name_of_setup);

}  // namespace
}  // namespace trident
