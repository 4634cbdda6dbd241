-- How many more jobs a limit or rate of a job admits now, and for a rate, in how many seconds it admits more. The
-- caller holds the lock of the key (stepwell.admit_keys). A setting of the key replaces the numbers of the rule.
create or replace function stepwell.room_of(
  _rule json,
  _rate boolean,
  _now timestamptz,
  out room integer,
  out next_in double precision
)
language plpgsql volatile
as $$
declare
  _longest constant double precision := 3155760000;  -- 100 years: more, added to a time, might be out of range
  _key text := _rule ->> 'key';
  _set stepwell.key_setting;
  _bucket stepwell.bucket;
  _held integer;
  _spacing double precision;
  _burst integer;
  _capacity double precision;
  _missing double precision;
begin
  select s.* into _set from stepwell.key_setting s where s.key = _key;
  -- Before the bucket: a claim deletes the permit and fills the bucket in one transaction. If it commits between the two
  -- statements, its token is counted twice, and not left out.
  _held := (select count(*) from stepwell.permit p where p.key = _key and p.rate = _rate);
  if not _rate then
    room := greatest(0, coalesce(_set.most, (_rule ->> 'most')::integer) - _held);
    return;
  end if;
  _spacing := coalesce(_set.spacing, (_rule ->> 'interval')::double precision);
  _burst := coalesce(_set.burst, (_rule ->> 'burst')::integer);
  -- A smooth rate holds a part of a second token, which makes up for a late claim.
  _capacity := _burst + coalesce(
    case when _set.spacing is null then (_rule ->> 'late')::double precision else _set.late end, 0
  );
  select b.* into _bucket from stepwell.bucket b where b.key = _key;
  if _bucket.closed_until > _now then
    room := 0;
    next_in := least(_longest, extract(epoch from _bucket.closed_until - _now));
    return;
  end if;
  -- A claim takes the tokens; admitted jobs have theirs reserved.
  _missing := stepwell.missing_tokens(_bucket.used, _bucket.used_at, _capacity, _spacing, _now);
  room := greatest(0, floor(_capacity - _missing + 1e-6)::integer - _held);
  -- Not for each token: 20 ms of them at once, as long as the bucket can hold them. If jobs that were admitted and not
  -- yet claimed have reserved all that it can hold, time alone makes no room: the next claim does.
  if _held < _burst then
    next_in := least(_longest, greatest(
      0.001, (_missing + _held + least(_burst - _held, greatest(1, ceil(0.02 / _spacing))) - _capacity) * _spacing
    ));
  end if;
end
$$;
