# SPDX-License-Identifier: Apache-2.0
# Who may include whom, as data. tests/check/includes reads it line by line; a line counts when it is a quoted string.
#
# ROS2_LAYERS: "LAYER: ALLOWED ..."; a file belongs to the layer with the longest matching directory. ALLOWED is a
# layer or one header of a layer; `*` is everything. A layer may always include itself.
set(ROS2_LAYERS
	"common:"
	"proto: common"
	"policy: common"
	"dataplane: common policy/image.h"
	"dataplane/client: common proto dataplane/wire.h dataplane/fabric/fabric.h dataplane/fabric/fabric_conn.h"
	"controller: common proto policy"
	"agent: common proto policy/image.h dataplane/dp.h dataplane/dp_probe.h dataplane/dp_discover.h"
	"tools: common proto policy"
	"tools/bench: common proto policy dataplane/client tools"
	"examples: dataplane/client/ros2.h"
	"tests: *")

# ROS2_FOREIGN: "HEADER-PREFIX: PATTERN ..."; only files that match a pattern may include such a header.
set(ROS2_FOREIGN
	"openssl/: common/crypto.c common/crypto_dh.c common/crypto_hash.c common/pki.c common/pki_issue.c common/pki_priv.h common/pki_trust.c proto/rpc/ssl.c tests/*"
	"microhttpd.h: common/metrics.c"
	"isa-l: common/crypto.c"
	"grpc/: proto/rpc/* tests/rpc/*"
	"google/protobuf/: proto/plugin/*"
	"protobuf-c/: proto/*"
	"sqlite3.h: controller/store_sqlite*.c tests/*"
	"liburing: dataplane/engines/file* dataplane/engines/uring* tests/sweep/* tests/bench/tcp/raw_file*"
	"yaml.h: policy/tree.c"
	"jansson.h: tools/* tests/*"
	"infiniband/: dataplane/fabric/*verbs* tests/attack/verbs* tests/fabric/*verbs* tests/guest/* tests/nvmf/target_verbs*"
	"rdma/: dataplane/fabric/*verbs* tests/attack/verbs* tests/fabric/*verbs* tests/guest/verbs* tests/nvmf/target_verbs*"
	"cmocka.h: tests/*")
