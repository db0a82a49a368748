#include "planner/machine/machine.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json machine_file() {
  return json::parse(read_file(source_dir() + "/configs/machines/dgx_a100.json"));
}

std::vector<std::string> problems_of(const std::string& text) {
  try {
    parse_machine(text, "m.json");
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

TEST(Machine, IsReadFromItsFile) {
  const Machine machine = dgx_a100();
  EXPECT_EQ(machine.devices_per_node, 8);
  EXPECT_EQ(machine.peak_of(DType::bf16), 312e12);
  EXPECT_EQ(machine.device.memory, 80.0 * (1 << 30));
  EXPECT_EQ(machine.across.bandwidth, 8 * 25e9);
  EXPECT_TRUE(machine.device.gpu);
}

TEST(Machine, AllFilesOfTheFolderAreRead) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/configs/machines")) {
    const Machine machine = read_machine(entry.path().string(), "");
    EXPECT_FALSE(machine.source.empty()) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4);
}

TEST(Machine, EachMissingKeyIsNamedWithItsPlace) {
  const json complete = machine_file();
  EXPECT_THAT(problems_of(complete.dump()), ElementsAre());
  int required = 0;
  const json flat = complete.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    json less = complete;
    const json::json_pointer at(pointer);
    less[at.parent_pointer()].erase(at.back());
    const auto problems = problems_of(less.dump());
    // A device needs at least one peak; a key with a default may be left out.
    const bool optional = pointer == "/source" || pointer.starts_with("/device/peak") ||
                          pointer == "/device/units" || pointer == "/device/launch" ||
                          pointer == "/device/taken_by_collectives" || pointer == "/device/skew" ||
                          pointer.starts_with("/efficiency");
    if (optional) {
      EXPECT_THAT(problems, ElementsAre()) << pointer;
    } else {
      EXPECT_THAT(problems, ElementsAre("m.json: " + pointer + ": is missing"));
      ++required;
    }
  }
  EXPECT_GT(required, 8);
}

TEST(Machine, WrongValuesAreAllNamedAtOnce) {
  json wrong = machine_file();
  wrong["device"]["memory"] = -1;
  wrong["device"]["units"] = 0;
  wrong["device"]["kind"] = "tpu";
  wrong["inside"]["bandwidth"] = "fast";
  wrong["across"]["latncy"] = 1;
  wrong["efficiency"]["links"] = 1.5;
  wrong["devices_per_node"] = 1.5;
  wrong["device"]["products"] = json::array({json::array({"fp8", 1, 1, 1, 1})});
  const auto problems = problems_of(wrong.dump());
  for (const char* part :
       {"m.json: /device/memory: -1: needs a positive number", "/device/units: 0: needs an integer",
        "/device/kind: \"tpu\": needs \"gpu\" or \"cpu\"", "/inside/bandwidth: \"fast\"",
        "/across/latncy: no such key; did you mean \"latency\"?",
        "/efficiency/links: 1.5: needs a fraction", "/devices_per_node: 1.5",
        "/device/products: [\"fp8\",1,1,1,1], number 0"}) {
    EXPECT_THAT(problems, ::testing::Contains(HasSubstr(part))) << part;
  }
  EXPECT_EQ(problems.size(), 8U);
  EXPECT_THAT(problems_of("[1]"), ::testing::Contains(HasSubstr("needs an object")));
  EXPECT_THAT(problems_of("{"), ::testing::Contains(HasSubstr("m.json:1:")));
  json large = machine_file();
  large["device"]["memory_bandwidth"] = 1e300;
  large["name"] = "two\nlines\u001b[31m";
  EXPECT_THAT(problems_of(large.dump()),
              ::testing::UnorderedElementsAre(
                  HasSubstr("/device/memory_bandwidth: 1e+300: needs a positive number of at most"),
                  HasSubstr("/name: two\\nlines\\x1b[31m: has control characters")));
  json none = machine_file();
  none["device"]["peak"] = json::object();
  EXPECT_THAT(problems_of(none.dump()), ElementsAre(HasSubstr("/device: peak needs a rate")));
}

TEST(Machine, LatenciesAndOverheadsMayBeZero) {
  json free = machine_file();
  free["device"]["launch"] = free["device"]["taken_by_collectives"] = free["device"]["skew"] = 0;
  free["inside"]["latency"] = free["across"]["latency"] = 0;
  const Machine machine = parse_machine(free.dump(), "m.json");
  EXPECT_EQ(machine.device.launch, 0);
  EXPECT_EQ(machine.device.taken_by_collectives, 0);
  EXPECT_EQ(machine.across.latency, 0);
  EXPECT_EQ(machine_text(parse_machine(machine_text(machine), "again.json")),
            machine_text(machine));
  json wrong = machine_file();
  wrong["device"]["launch"] = -1;
  wrong["across"]["latency"] = "none";
  wrong["device"]["taken_by_collectives"] = 2;
  wrong["device"]["memory_bandwidth"] = 0;
  EXPECT_THAT(problems_of(wrong.dump()),
              ::testing::UnorderedElementsAre(
                  HasSubstr("/device/launch: -1: needs 0 or a positive number"),
                  HasSubstr("/across/latency: \"none\": needs 0 or a positive number"),
                  HasSubstr("/device/taken_by_collectives: 2: needs a fraction of at most 1"),
                  HasSubstr("/device/memory_bandwidth: 0: needs a positive number")));
}

TEST(Machine, ItsFileIsReadAsItWasWritten) {
  json file = machine_file();
  file["nodes"] = 3;
  file["device"]["skew"] = 0.08;
  file["device"]["products"] = json::array({json::array({"fp16", 64, 32, 16, 1e9})});
  file["device"]["kernels"] =
      json::array({json::array({"gelu_forward", "fp32", 4096, 1e-6}),
                   json::array({"gemm nt", "bf16", 64, 32, 16, 2e-6}),
                   json::array({"attention_forward", "fp32", 1e6, 4096, 3e-6})});
  const Machine machine = parse_machine(file.dump(), "m.json");
  const std::string text = machine_text(machine);
  const Machine again = parse_machine(text, "again.json");
  EXPECT_EQ(machine_text(again), text);
  EXPECT_EQ(again.nodes, 3);
  EXPECT_EQ(again.device.skew, 0.08);
  EXPECT_EQ(again.inside.bandwidth, machine.inside.bandwidth);
  EXPECT_EQ(again.efficiency.links, machine.efficiency.links);
  EXPECT_EQ(again.device.peak, machine.device.peak);
  ASSERT_EQ(again.device.kernels.size(), 4U);
  EXPECT_EQ(again.device.kernels.at("gemm nt bf16").front().size,
            (std::array<double, 3>{64, 32, 16}));
  EXPECT_NEAR(again.device.kernels.at("gemm fp16").front().seconds, 2.0 * 64 * 32 * 16 / 1e9, 1e-8);
  EXPECT_EQ(again.device.kernels.at("attention_forward fp32").front().seconds, 3e-6);
  // An efficiency may exceed 1: the peak may have been measured in a slow moment.
  file["efficiency"]["products"] = 1.2;
  EXPECT_EQ(parse_machine(file.dump(), "m.json").efficiency.products, 1.2);
}

TEST(Machine, OfSeveralMeasurementsTheMediansCount) {
  std::vector<Machine> measured;
  for (const double slow : {3.0, 1.0, 2.0}) {
    json file = machine_file();
    file["device"]["skew"] = 0.01 * slow;
    file["inside"]["bandwidth"] = 1e9 * slow;
    file["device"]["kernels"] = json::array({json::array({"adam", "fp32", 4096, 1e-6 * slow})});
    if (slow == 2) file["device"]["kernels"].push_back({"adam", "fp32", 8192, 5e-6});
    measured.push_back(parse_machine(file.dump(), "m.json"));
  }
  const Machine machine = median_of(measured);
  EXPECT_EQ(machine.device.skew, 0.02);
  EXPECT_EQ(machine.inside.bandwidth, 2e9);
  EXPECT_EQ(machine.device.peak, measured.front().device.peak);
  const auto& kernels = machine.device.kernels.at("adam fp32");
  ASSERT_EQ(kernels.size(), 2U);  // the other one was seen only once
  EXPECT_EQ(kernels[0].seconds, 2e-6);
  EXPECT_EQ(kernels[1].seconds, 5e-6);
}

TEST(Machine, WrongKernelsAreNamed) {
  for (const json& row :
       {json{"gelu_forward", "fp8", 4096, 1e-6}, json{"gelu_forward", "fp32", 4096},
        json{"gelu_forward", "fp32", -4096, 1e-6}, json{"gemm nt", "fp32", 64, 32, 1e-6},
        json{"attention_forward", "fp32", 1e6, 1e-6}, json{"gelu_forward", "fp32", 1, 2, 1e-6},
        json{1, "fp32", 1, 1e-6}, json{"gelu_forward", "fp32", 1e-200, 1e-6},
        json{"gelu_forward", "fp32", 4096, 1e-320}, json{"gelu_forward", "fp32", 4096, nullptr}}) {
    json file = machine_file();
    file["device"]["kernels"] = json::array({row});
    EXPECT_THAT(problems_of(file.dump()), ElementsAre(HasSubstr("m.json: /device/kernels: [")))
        << row;
  }
}

TEST(Machine, ATypeWithoutARateIsAnError) {
  json only = machine_file();
  only["device"]["peak"].erase("fp32");
  const Machine machine = parse_machine(only.dump(), "m.json");
  EXPECT_THROW(machine.peak_of(DType::f32), RequestError);
}

}  // namespace
}  // namespace trident::testing
