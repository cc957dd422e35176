// Unpack columns of integers: base64, raw deflate, differences. The other side is `jaxtrade/reporting/bars.py`.
"use strict";
(function (jt) {
  const READ = {
    u1: (view, at) => view.getUint8(at),
    i2: (view, at) => view.getInt16(at, true),
    i4: (view, at) => view.getInt32(at, true),
  };
  const BYTES = { u1: 1, i2: 2, i4: 4 };

  async function inflated(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new DataView(await new Response(stream).arrayBuffer());
  }

  // -> name -> Float64Array of `rows` integers
  jt.unpack = async function (bundle) {
    const view = await inflated(bundle.data);
    const found = {};
    let at = 0;
    for (const column of bundle.columns) {
      const values = new Float64Array(bundle.rows);
      const base = column.above === null ? null : found[column.above];
      let last = column.first;
      for (let i = 0; i < bundle.rows; i++, at += BYTES[column.type]) {
        const difference = READ[column.type](view, at);
        last = base === null ? last + difference : base[i] + difference;
        values[i] = last;
      }
      found[column.name] = values;
    }
    return found;
  };
})(window.jaxtrade);
