#include "kernels/embedding.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

class EmbeddingTest : public KernelTest {
 protected:
  static constexpr std::int64_t rows = 6, begin = 4, tokens = 65;
  // Ids inside and outside the slice, with repeats.
  static Values ids() {
    Values values;
    for (std::int64_t t = 0; t < tokens; ++t) values.push_back(static_cast<double>(t * 7 % 15));
    return values;
  }
};

TEST_P(EmbeddingTest, TakesRowsOfTheSliceAndZeroElsewhere) {
  for (const std::int64_t columns : {1, 3, 17, 257}) {
    const Values table = random(rows * columns, "table"), id = ids();
    const Tensor out = empty({tokens, columns});
    embedding_forward(context, {.ids = put_as(DType::i32, id, {tokens}),
                                .table = put(table, {rows, columns}),
                                .out = out,
                                .begin = begin});
    const Values got = get(out);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto row = static_cast<std::int64_t>(reference::at(id, t)) - begin;
      for (std::int64_t i = 0; i < columns; ++i) {
        const bool here = row >= 0 && row < rows;
        ASSERT_EQ(reference::at(got, t * columns + i),
                  here ? reference::at(table, row * columns + i) : 0.0);
      }
    }
  }
}

TEST_P(EmbeddingTest, GradientsAddInTokenOrder) {
  for (const std::int64_t columns : {1, 3, 17, 257}) {
    const Values grad = random(tokens * columns, "grad"), id = ids();
    const Values before = random_of(DType::f32, rows * columns, "before");
    std::vector<float> want(before.begin(), before.end());
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto row = static_cast<std::int64_t>(reference::at(id, t)) - begin;
      if (row < 0 || row >= rows) continue;
      for (std::int64_t i = 0; i < columns; ++i) {
        want[static_cast<std::size_t>(row * columns + i)] +=
            static_cast<float>(reference::at(grad, t * columns + i));
      }
    }
    const Tensor table = put_as(DType::f32, before, {rows, columns});
    embedding_backward(context, {.ids = put_as(DType::i32, id, {tokens}),
                                 .grad_out = put(grad, {tokens, columns}),
                                 .grad_table = table,
                                 .begin = begin});
    EXPECT_EQ(get(table), Values(want.begin(), want.end()));  // bitwise
  }
}

// This is torch.nn.Embedding's padding_idx. It may lie in the slice or outside.
TEST_P(EmbeddingTest, ThePaddingsRowGetsNothing) {
  const std::int64_t columns = 17;
  const Values grad = random(tokens * columns, "grad"), id = ids();
  const Values before = random_of(DType::f32, rows * columns, "before");
  for (const std::int64_t padding : {-1, 2, 5, 9, 14}) {
    std::vector<float> want(before.begin(), before.end());
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto token = static_cast<std::int64_t>(reference::at(id, t));
      if (token == padding || token < begin || token >= begin + rows) continue;
      for (std::int64_t i = 0; i < columns; ++i) {
        want[static_cast<std::size_t>((token - begin) * columns + i)] +=
            static_cast<float>(reference::at(grad, t * columns + i));
      }
    }
    const Tensor table = put_as(DType::f32, before, {rows, columns});
    embedding_backward(context, {.ids = put_as(DType::i32, id, {tokens}),
                                 .grad_out = put(grad, {tokens, columns}),
                                 .grad_table = table,
                                 .begin = begin,
                                 .padding = padding});
    EXPECT_EQ(get(table), Values(want.begin(), want.end())) << padding;  // bitwise
  }
}

// In a text one id may be a large part of all tokens. A GPU adds its row in several parts.
TEST_P(EmbeddingTest, FrequentIdsAddTheSameInEveryRun) {
  for (const std::int64_t count : {64, 65, 129, 2000}) {
    const std::int64_t columns = count == 129 ? 17 : 24;  // single elements, or packs
    Values id;
    for (std::int64_t t = 0; t < count; ++t) {
      id.push_back(static_cast<double>(t % 3 == 0 ? t * 7 % 15 : count % 2 == 0 ? 5 : 9));
    }
    const Values grad = random(count * columns, "grad");
    const Values before = random_of(DType::f32, rows * columns, "before");
    Values want = before;
    for (std::int64_t t = 0; t < count; ++t) {
      const auto row = static_cast<std::int64_t>(reference::at(id, t)) - begin;
      if (row < 0 || row >= rows) continue;
      for (std::int64_t i = 0; i < columns; ++i) {
        reference::at(want, row * columns + i) += reference::at(grad, t * columns + i);
      }
    }
    Values first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Tensor table = put_as(DType::f32, before, {rows, columns});
      embedding_backward(context, {.ids = put_as(DType::i32, id, {count}),
                                   .grad_out = put(grad, {count, columns}),
                                   .grad_table = table,
                                   .begin = begin});
      expect_near(table, want, "table", 1e-6);
      if (repeat > 0) {
        EXPECT_EQ(get(table), first);
      }
      first = get(table);
    }
    // If many terms are added in 16 bits one after the other, many of them are lost.
    const Tensor narrow = put(Values(before.size(), 0.0), {rows, columns});
    embedding_backward(context, {.ids = put_as(DType::i32, id, {count}),
                                 .grad_out = put(grad, {count, columns}),
                                 .grad_table = narrow,
                                 .begin = begin});
    for (std::size_t i = 0; i < want.size(); ++i) want[i] -= before[i];
    expect_near(narrow, want, "a table of the gradients' type", dtype == DType::f32 ? 2e-6 : 0.1);
  }
}

TEST_P(EmbeddingTest, PositionsWrapAtTheSequenceAndStartAtFirstRow) {
  const std::int64_t columns = 17, sequence = 5, first = 3, count = 12;
  const Values table = random(7 * columns, "table"), x = random(count * columns, "x");
  Values want = x;
  std::vector<float> grad(static_cast<std::size_t>(7 * columns), 0.0f);
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t position = (first + t) % sequence;
    for (std::int64_t i = 0; i < columns; ++i) {
      reference::at(want, t * columns + i) += reference::at(table, position * columns + i);
      grad[static_cast<std::size_t>(position * columns + i)] +=
          static_cast<float>(reference::at(x, t * columns + i));
    }
  }
  const Tensor grad_table = put_as(DType::f32, Values(grad.size(), 0.0), {7, columns});
  position_backward(context, {.grad_x = put(x, {count, columns}),
                              .grad_table = grad_table,
                              .sequence = sequence,
                              .first_row = first});
  EXPECT_EQ(get(grad_table), Values(grad.begin(), grad.end()));
  const Tensor y = put(x, {count, columns});
  position_forward(
      context,
      {.x = y, .table = put(table, {7, columns}), .sequence = sequence, .first_row = first});
  expect_near(y, want, "x");
}

TEST_P(EmbeddingTest, PositionsContinueAfterOthers) {
  const std::int64_t columns = 17;
  const Values table = random(7 * columns, "table"), x = random(4 * columns, "x");
  Values want = x;
  for (std::int64_t t = 0; t < 4; ++t) {  // two samples of positions 4 and 5
    for (std::int64_t i = 0; i < columns; ++i) {
      reference::at(want, t * columns + i) += reference::at(table, (4 + t % 2) * columns + i);
    }
  }
  const Tensor y = put(x, {4, columns});
  const Tensor positions = put(table, {7, columns});
  position_forward(context, {.x = y, .table = positions, .sequence = 2, .begin = 4});
  expect_near(y, want, "x");
  EXPECT_THROW(position_forward(context, {.x = y, .table = positions, .sequence = 2, .begin = 6}),
               Error);
}

TEST_P(EmbeddingTest, RefusesASequenceBeyondTheTable) {
  EXPECT_THROW(
      position_forward(context, {.x = empty({4, 3}), .table = empty({4, 3}), .sequence = 5}),
      Error);
  EXPECT_THROW(embedding_forward(context, {.ids = put_as(DType::i32, {1}, {1}),
                                           .table = empty({4, 3}),
                                           .out = empty({2, 3})}),
               Error);
}

TRIDENT_KERNEL_SUITE(EmbeddingTest);

}  // namespace
}  // namespace trident
