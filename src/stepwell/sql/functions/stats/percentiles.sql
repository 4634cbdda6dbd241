-- The times, in seconds, within which 50, 95 and 99 percent of those in a histogram are. Within a bin the times are
-- taken as evenly spread on a logarithmic scale, so each is off by less than a factor of the square root of 2. A time
-- in the last bin is reported as the last bound, in the first bin as a part of the first bound. Null: the histogram is
-- empty.
create or replace function stepwell.percentiles(_histogram bigint[]) returns double precision[]
language plpgsql immutable
as $$
declare
  _bounds constant double precision[] := stepwell.histogram_bounds();
  _shares constant double precision[] := '{0.5, 0.95, 0.99}';
  _total double precision := (select sum(u.count) from unnest(_histogram) as u (count));
  _found double precision[] := '{}';
  _before double precision := 0;
  _share integer := 1;
  _within double precision;
begin
  if coalesce(_total, 0) <= 0 then
    return null;
  end if;
  for _n in 1..cardinality(_histogram) loop
    while _share <= 3 and _histogram[_n] > 0 and _before + _histogram[_n] >= _shares[_share] * _total loop
      _within := (_shares[_share] * _total - _before) / _histogram[_n];
      _found := _found || case
        when _n = 1 then _bounds[1] * _within
        when _n > cardinality(_bounds) then _bounds[cardinality(_bounds)]
        else _bounds[_n - 1] * 2 ^ (_within / 2)
      end;
      _share := _share + 1;
    end loop;
    exit when _share > 3;
    _before := _before + _histogram[_n];
  end loop;
  return case when cardinality(_found) = 3 then _found end;
end
$$;
