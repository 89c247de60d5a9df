// The Bokeh plot: canvas, ranges, time axis and grid. All lanes are one Bokeh renderer, which calls `paint`.

const LEFT = 212;  // width of the labels of lanes

function makePlot(holder, paint) {
  const models = Bokeh.require('models/index');
  const { Annotation, AnnotationView } = Bokeh.require('models/annotations/annotation');
  const { BasicTicker } = Bokeh.require('models/tickers/basic_ticker');
  const { TickFormatter } = Bokeh.require('models/formatters/tick_formatter');

  class TimeFormatter extends TickFormatter {
    doFormat(ticks) {
      const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 0;
      return ticks.map((tick) => tick === 0 ? '0' : formatTime(tick, step));
    }
  }
  let view = null;
  class LanesView extends AnnotationView {
    get needs_clip() { return false; }  // labels of lanes are outside the frame
    _paint(context) {
      view = this;
      const ctx = context ?? this.layer.ctx;
      const { left, top, width, height } = this.plot_view.frame.bbox;
      paint(ctx, { left, top, width, height });
    }
  }
  class Lanes extends Annotation {}
  Lanes.prototype.default_view = LanesView;

  const range = new models.Range1d({ start: 0, end: 1 });
  const plot = new models.Plot({
    x_range: range, y_range: new models.Range1d({ start: 0, end: 1 }), toolbar_location: null, lod_threshold: null,
    sizing_mode: 'stretch_both', min_border: 0, min_border_left: LEFT, min_border_right: 30, match_aspect: false,
    outline_line_color: null, background_fill_color: null, border_fill_color: null,
  });
  const ticker = new BasicTicker({ desired_num_ticks: 9, num_minor_ticks: 5 });
  const axis = new models.LinearAxis({
    ticker, formatter: new TimeFormatter(), major_label_text_font: FONT, major_label_text_font_size: '11px',
    axis_line_color: null, major_tick_in: 0, major_tick_out: 5, minor_tick_out: 3, minor_tick_in: 0,
  });
  const grid = new models.Grid({ axis, dimension: 0 });
  const lanes = new Lanes({ level: 'annotation' });
  plot.add_layout(axis, 'above');
  plot.add_layout(grid);
  plot.add_layout(lanes);

  return {
    show: async () => {
      const { Document } = Bokeh.require('document');
      const page = new Document();
      page.add_root(plot);
      await Bokeh.embed.add_document_standalone(page, holder);
    },
    move: (start, end) => range.setv({ start, end }),
    repaint: () => view?.request_paint(),
    // draws the plot again at `ratio` times the resolution of CSS pixels; Bokeh has no option for it
    copy: (ratio) => {
      const own = devicePixelRatio;
      Object.defineProperty(window, 'devicePixelRatio', { value: ratio, configurable: true, writable: true });
      try {
        return view.plot_view.export('png', true).canvas;
      } finally {
        window.devicePixelRatio = own;
      }
    },
    color: (theme) => {
      plot.setv({ background_fill_color: theme.page, border_fill_color: theme.page });
      axis.setv({ major_label_text_color: theme.muted, major_tick_line_color: theme.strong, minor_tick_line_color: theme.line });
      grid.setv({ grid_line_color: theme.line });
    },
  };
}
