// A checkpoint's manifest, first unchanged, then with the right sum, which mutations would not
// find.
#include "base/files/crc64.h"
#include "checkpoint/manifest.h"
#include "fuzz/fuzzing.h"

namespace trident::fuzzing {
namespace {

void read_manifest(const std::string& text) {
  Manifest manifest;
  if (!accepted([&] { manifest = parse_manifest(text, "manifest.json"); })) return;
  const std::string written = manifest_text(manifest);
  Manifest again = parse_manifest(written, "manifest.json");
  require(manifest_text(again) == written && again.tensors == manifest.tensors &&
              again.files == manifest.files && again.made_by == manifest.made_by,
          "a manifest that is read and written is the same");
}

}  // namespace

void fuzz_manifest(std::string_view input) {
  read_manifest(std::string(input));
  std::string text(input.substr(0, input.rfind(",\n\"root\": ")));
  text += ",\n\"root\": \"" + hex64(crc64(text)) + "\"}\n";
  read_manifest(text);
}

}  // namespace trident::fuzzing
